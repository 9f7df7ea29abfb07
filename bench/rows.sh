# The rows of bench/compare, which sources this file once per round: `run` and its kin append the lines of one round.

ALL="tetration tet-py zarrs h5py zarr-python tiledb"

if want read_full; then
    run tesseral copy copy "$DATA/cube.f32"
    on_cube read_full read raw numpy $ALL
    run tesseral copy copy "$DATA/cube.f32"
fi
if want read_view; then
    run tesseral copy copy "$DATA/cube.f32"
    make tesseral "$DATA/cube.f32" "$DATA/cube-view.tet" --chunk "$VIEW"
    for who in $(with tet-py); do run "$who" read_view read_view "$DATA/cube-view.tet"; done
    for who in $(peers numpy); do run "$who" read_view read_view "$DATA/cube.f32"; done
fi
if want read_zstd; then
    cube tesseral zstd
    run tesseral zstd_lib zstd_lib "$FILE"
    on_cube read_zstd read zstd $ALL
    cube tesseral zstd
    run tesseral zstd_lib zstd_lib "$FILE"
fi
if want write_raw; then
    # To the disk, durable on all sides.
    for who in $(with $ALL); do
        run "$who" write_raw write "$DATA/cube.f32" --out "$OUT/out.$who" --durable yes
    done
    for format in tgm tdb; do run tesseral "write_raw_$format" write "$DATA/cube.f32" --out "$OUT/out.$format" --durable yes; done
fi
if want write_raw_memory && [ "$MEMORY" ]; then
    for who in $(with $ALL); do
        run "$who" write_raw_memory write "$DATA/cube.f32" --out "$MEMORY/out.$who" --durable no
    done
fi
if want write_zstd; then
    cube tesseral raw
    run tesseral zstd_lib_write zstd_lib_write "$FILE"
    for who in $(with tetration zarrs h5py zarr-python tiledb); do
        run "$who" write_zstd write "$DATA/cube.f32" --codec zstd --out "$OUT/out.$who" --durable yes
    done
fi
for case in window series min max std mean_axis0; do
    if want "$case"; then on_cube "$case" "$case" raw numpy $ALL; fi
done
if want window_zstd; then on_cube window_zstd window zstd zarrs h5py zarr-python tiledb netcdf4; fi
if want mean; then
    run tesseral sum2 sum2 "$DATA/cube.f32"
    on_cube mean mean raw numpy $ALL
    for kind in view slab pillar ragged; do
        chunk="${kind^^}"
        make tesseral "$DATA/cube.f32" "$DATA/cube-$kind.tet" --chunk "${!chunk}"
        run tesseral "mean_$kind" mean "$DATA/cube-$kind.tet"
    done
    run tesseral sum2 sum2 "$DATA/cube.f32"
fi
if want stats; then
    make tesseral "$DATA/cube.f32" "$DATA/cube-stats.tet" --statistics yes
    for op in mean min; do
        run tesseral "${op}_stats" "$op" "$DATA/cube-stats.tet"
        for who in $(peers tiledb); do cube "$who" raw; run "$who" "${op}_stats" "${op}_stats" "$FILE"; done
    done
    # By default, against the library that always has statistics: zstd chunks, and slabs.
    for op in mean min max; do
        cube tesseral zstd
        run tesseral "${op}_zstd_default" "$op" "$FILE"
        for who in $(peers tiledb); do cube "$who" zstd; run "$who" "${op}_zstd_default" "${op}_stats" "$FILE"; done
    done
    make tesseral "$DATA/cube.f32" "$DATA/cube-slab.tet" --chunk "$SLAB"
    for who in $(peers tiledb); do make "$who" "$DATA/cube.f32" "$DATA/cube-slab.tiledb" --chunk "$SLAB"; done
    for op in mean min; do
        run tesseral "${op}_slab_default" "$op" "$DATA/cube-slab.tet"
        for who in $(peers tiledb); do run "$who" "${op}_slab_default" "${op}_stats" "$DATA/cube-slab.tiledb"; done
    done
fi
if want sum_chunks; then
    grid "$SUM_SIDE"
    for who in $(with tetration tet-py); do run "$who" sum_chunks_bare sum "$FILE"; done
    if [ "$(peers tet-py)" ]; then
        extent=$((SUM_SIDE * 8))
        FILE="$DATA/grid-$SUM_SIDE.tet-py"
        make tet-py "$DATA/grid-$SUM_SIDE.f32" "$FILE" --shape "$extent,$extent" --chunk 8,8
        for who in $(with tetration tet-py); do run "$who" sum_chunks sum "$FILE"; done
    fi
fi
if want scaling; then
    for side in $SCALING; do
        grid "$side"
        run tesseral "scaling_$((side * side))" open_sum "$FILE"
    done
fi
if want open_summary; then
    for side in $OPEN_SIDES; do
        grid "$side"
        for who in $(with tetration); do run "$who" "open_summary_$((side * side))" open "$FILE"; done
    done
fi
if want kinds; then
    # Other dtypes, and many small arrays.
    [ "$QUICK" ] && ARRAYS=500 HALF=30,200,200 || { ARRAYS=10000 HALF=120,361,720; }
    plain "$DATA/half.f32" "$HALF"
    once "$DATA/cube.f64" "$OURS" widen "$DATA/half.f32" --out "$DATA/cube.f64" --runs 0
    once "$DATA/cube.i32" "$OURS" classes "$DATA/cube.f32" --out "$DATA/cube.i32" --runs 0
    for dtype in f64 i32; do
        shape="$([ "$dtype" = f64 ] && echo "$HALF" || echo "$SHAPE")"
        for who in $(with h5py zarr-python tiledb); do
            FILE="$DATA/cube-$dtype.$([ "$who" = tesseral ] && echo tet || echo "$who")"
            make "$who" "$DATA/cube.$dtype" "$FILE" --codec zstd --dtype "$dtype" --shape "$shape"
            run "$who" "read_$dtype" read "$FILE"
        done
    done
    once "$DATA/small.tet" "$OURS" make_small "$DATA/small.tet" --count "$ARRAYS" --runs 0
    run tesseral small_arrays small "$DATA/small.tet" --count "$ARRAYS"
    for who in $(peers h5py); do
        once "$DATA/small.h5" "$VENV/bin/python" "$ROOT/bench/peers.py" "$who" make_small "$DATA/small.h5" --count "$ARRAYS" --runs 0
        run "$who" small_arrays small "$DATA/small.h5" --count "$ARRAYS"
    done
fi
if want engine; then
    # Folds of zstd chunks without statistics, a sum pruned by statistics, conversions compared with reading and writing alone, rechunking.
    cube tesseral zstd
    run tesseral zstd_lib zstd_lib "$FILE"
    for op in mean min max std; do on_cube "${op}_zstd" "$op" zstd tet-py zarrs h5py zarr-python dask; done
    make tesseral "$DATA/cube.f32" "$DATA/cube-stats.tet" --statistics yes
    cube tesseral raw
    run tesseral sum_where_all sum_where "$FILE" --where "$RARE"
    run tesseral sum_where sum_where "$DATA/cube-stats.tet" --where "$RARE"
    for format in tet tgm tdb; do
        run tesseral "write_$format" write "$DATA/cube.f32" --out "$OUT/out.$format"
        make tesseral "$DATA/cube.f32" "$DATA/from.$format"
        run tesseral "read_$format" read "$DATA/from.$format"
    done
    for from in tet tgm tdb; do
        for to in tet tgm tdb; do
            [ "$from" = "$to" ] || run tesseral "convert_${from}_$to" convert "$DATA/from.$from" --out "$OUT/to.$to"
        done
    done
    for who in $(with zarr-python); do
        cube "$who" raw
        run "$who" rechunk rechunk "$FILE" --chunk "$PILLAR" --out "$OUT/rechunked.$([ "$who" = tesseral ] && echo tet || echo zarr)" --durable yes
    done
fi
if want python && [ "$PEERS" ] && [ -x "$VENV/bin/python" ]; then
    cube tesseral raw; ours="$FILE"
    run tesseral window window "$ours"
    run tesseral-py py_window window "$ours"
    for who in $(peers tet-py tiledb zarr-python); do cube "$who" raw; run "$who" py_window window "$FILE"; done
    cube tesseral zstd
    run tesseral-py py_read_zstd read "$FILE"
    for who in $(peers h5py tiledb zarr-python); do cube "$who" zstd; run "$who" py_read_zstd read "$FILE"; done
    plain "$DATA/field.f32" 721,1440
    once "$DATA/field.f64" "$OURS" widen "$DATA/field.f32" --out "$DATA/field.f64" --runs 0
    for pipeline in none sp16; do
        for who in tesseral-py $(peers tensogram-py); do
            run "$who" "py_encode_$pipeline" tgm_encode "$DATA/field.f64" --shape 721,1440 --pipeline "$pipeline"
            run "$who" "py_decode_$pipeline" tgm_decode "$DATA/field.f64" --shape 721,1440 --pipeline "$pipeline"
        done
    done
    cube tesseral raw
    for who in tesseral-py $(peers numpy); do run "$who" py_import import "$FILE"; done
    for who in tesseral-py $(peers netcdf4); do
        case "$who" in tesseral-py) cube tesseral zstd ;; *) cube "$who" zstd ;; esac
        run "$who" py_xarray_mean xarray_mean "$FILE"
    done
fi

if want tiledb && [ "$(peers tiledb)" ]; then
    # The same arrays, written by the reference, read by both.
    if [ "$QUICK" ]; then
        ROWS=200000 VERSIONS=50 ALIGNED="0=0:45 1=0:200 2=0:200" CUT="0=3:57 1=7:191 2=11:183"
    else
        ROWS=5000000 VERSIONS=1000 ALIGNED="0=0:240 1=0:273 2=0:720" CUT="0=3:237 1=7:351 2=11:683"
    fi
    cube tiledb raw; RAW="$FILE"
    cube tiledb zstd; ZSTD="$FILE"
    peer() { "$VENV/bin/python" "$ROOT/bench/peers.py" tiledb "$@" --runs 0 >/dev/null; }
    once "$DATA/rows.tiledb" peer make_rows - --count "$ROWS" --out "$DATA/rows.tiledb"
    once "$DATA/versions.tiledb" peer make_versions - --count "$VERSIONS" --out "$DATA/versions.tiledb"
    arrays() { # LABEL CASE FILE [options]
        local label="$1" case="$2" file="$3" who
        shift 3
        for who in $(with tiledb); do run "$who" "$label" "$case" "$file" "$@"; done
    }
    arrays open_one_fragment open_array "$RAW"
    arrays open_many_fragments open_array "$DATA/versions.tiledb"
    arrays one_cell cell "$RAW"
    arrays tiles_raw read "$RAW"
    cube tesseral zstd
    run tesseral zstd_lib zstd_lib "$FILE"
    cube tesseral raw
    run tesseral zstd_lib_read_pieces zstd_lib_read_pieces "$FILE"
    arrays tiles_zstd read "$ZSTD"
    run tesseral zstd_lib_read_pieces zstd_lib_read_pieces "$FILE"
    arrays tiles_series series "$RAW"
    arrays rows_hundredth rows "$DATA/rows.tiledb" --query "x=20000..29999 y=20000..29999"
    arrays rows_few rows "$DATA/rows.tiledb" --query "x=20000..20999 y=20000..20999"
    arrays rows_all rows "$DATA/rows.tiledb"
    arrays rows_where rows "$DATA/rows.tiledb" --where "a > 100.0"
    for who in $(peers parquet); do
        once "$DATA/rows.parquet" "$VENV/bin/python" "$ROOT/bench/peers.py" "$who" make_rows - --count "$ROWS" --out "$DATA/rows.parquet" --runs 0
        run "$who" rows_where rows "$DATA/rows.parquet" --where "a > 100.0"
    done
    arrays rows_none rows "$DATA/rows.tiledb" --where "a > 1000000.0"
    arrays total_aligned total "$RAW" --query "$ALIGNED"
    arrays total_cut total "$RAW" --query "$CUT"
    # The library's own folds, over all cells of the same array, both from stored statistics.
    for op in mean min max; do
        run tesseral "${op}_tiles" "$op" "$RAW"
        run tiledb "${op}_tiles" "${op}_stats" "$RAW"
    done
fi
if want tiledb_write && [ "$(peers tiledb)" ]; then
    # The same cells, schemas, filters and levels, to the disk. Both sync what they write, we folders too.
    if [ "$QUICK" ]; then CELLS=200000 VERSIONS=50 FRAGMENTS=100000 BOXES=400; else CELLS=5000000 VERSIONS=1000 FRAGMENTS=2000000 BOXES=2000; fi
    peer() { "$VENV/bin/python" "$ROOT/bench/peers.py" tiledb "$@" --runs 0 >/dev/null; }
    once "$DATA/columns" peer make_columns - --count "$CELLS" --out "$DATA/columns"
    once "$DATA/fragments.tiledb" peer make_fragments - --count "$FRAGMENTS" --out "$DATA/fragments.tiledb"
    once "$DATA/boxes.tiledb" peer make_boxes - --count "$BOXES" --out "$DATA/boxes.tiledb"
    written() { # LABEL CASE FILE [options]
        local label="$1" case="$2" file="$3" who
        shift 3
        for who in $(with tiledb); do run "$who" "$label" "$case" "$file" --out "$OUT/out.$who" "$@"; done
    }
    written write_tiles_raw tdb_write "$DATA/cube.f32"
    cube tesseral raw
    run tesseral zstd_lib_pieces zstd_lib_pieces "$FILE"
    written write_tiles_zstd tdb_write "$DATA/cube.f32" --codec zstd
    run tesseral zstd_lib_pieces zstd_lib_pieces "$FILE"
    written write_rows tdb_rows "$DATA/columns" --count "$CELLS"
    for who in $(peers parquet); do run "$who" write_rows parquet_rows "$DATA/columns" --count "$CELLS" --out "$OUT/out.$who" --durable yes; done
    written write_small tdb_small - --count 100
    written append_small tdb_append - --count "$VERSIONS"
    written consolidate_rows tdb_consolidate "$DATA/fragments.tiledb"
    written consolidate_tiles tdb_consolidate "$DATA/boxes.tiledb"
fi
if want tensogram; then
    # A field of 721×1440 f64 cells, a message of 67 MB, and a file of 50,000 messages of 4 KB.
    FIELD="$DATA/field.f64" BIG="$DATA/big.tgm" MANY="$DATA/many.tgm"
    [ "$QUICK" ] && BIG_SIDE=2100 MESSAGES=2000 || { BIG_SIDE=2900 MESSAGES=50000; }
    plain "$DATA/field.f32" 721,1440
    once "$FIELD" "$OURS" widen "$DATA/field.f32" --out "$FIELD" --runs 0
    plain "$DATA/big.f32" "$BIG_SIDE,$BIG_SIDE"
    once "$DATA/big.f64" "$OURS" widen "$DATA/big.f32" --out "$DATA/big.f64" --runs 0
    once "$BIG" "$OURS" tgm_write "$DATA/big.f64" --shape "$BIG_SIDE,$BIG_SIDE" --out "$BIG" --runs 0
    head -c 4096 "$FIELD" >"$DATA/small.f64"
    once "$MANY" "$OURS" tgm_write "$DATA/small.f64" --shape 512 --count "$MESSAGES" --out "$MANY" --runs 0
    messages() { # LABEL CASE FILE [options]
        local label="$1" case="$2" file="$3" who
        shift 3
        for who in $(with tensogram); do run "$who" "$label" "$case" "$file" --shape 721,1440 "$@"; done
    }
    for pipeline in none sp16 sp7 sp12 sp31 sp16+szip shuffle zstd lz4; do
        messages "encode_$pipeline" tgm_encode "$FIELD" --pipeline "$pipeline"
        messages "decode_$pipeline" tgm_decode "$FIELD" --pipeline "$pipeline"
    done
    messages "decode_sp16+szip_threads" tgm_decode "$FIELD" --pipeline sp16+szip --threads 2
    messages decode_view tgm_view "$FIELD"
    for pipeline in none sp16 sp16+szip; do messages "range_$pipeline" tgm_range "$FIELD" --pipeline "$pipeline"; done
    messages metadata_of_file tgm_metadata_of "$BIG"
    messages range_of_file tgm_range_of "$BIG"
    messages count_messages tgm_count "$MANY"
    messages some_messages tgm_some "$MANY"
    plain "$DATA/degree.f32" 181,360
    once "$DATA/degree.f64" "$OURS" widen "$DATA/degree.f32" --out "$DATA/degree.f64" --runs 0
    once "$DATA/thousand.tgm" "$OURS" tgm_write "$DATA/degree.f64" --shape 181,360 --pipeline sp16 --count 1000 --out "$DATA/thousand.tgm" --runs 0
    messages all_messages tgm_all "$DATA/thousand.tgm"
    messages append_messages tgm_append "$FIELD" --out "$OUT/appended.tgm" --durable yes
    [ -z "$MEMORY" ] || messages append_messages_memory tgm_append "$FIELD" --out "$MEMORY/appended.tgm" --durable no
    run tesseral xxh3 xxh3 "$FIELD"
    messages verify_message tgm_verify "$FIELD"
fi
if want large_messages; then
    # The bytes of the cube in ten messages, raw and zstd: read whole, written, verified.
    TEN=24,361,360
    head -c "$(($(stat -c %s "$DATA/cube.f32") / 10))" "$DATA/cube.f32" >"$DATA/tenth.f64"
    [ "$QUICK" ] && TEN=6,200,100
    for pipeline in none zstd; do
        once "$DATA/ten-$pipeline.tgm" "$OURS" tgm_write "$DATA/tenth.f64" --shape "$TEN" --pipeline "$pipeline" --count 10 --out "$DATA/ten-$pipeline.tgm" --runs 0
        for who in $(with tensogram); do
            run "$who" "ten_read_$pipeline" tgm_all "$DATA/ten-$pipeline.tgm"
            run "$who" "ten_write_$pipeline" tgm_ten "$DATA/tenth.f64" --shape "$TEN" --pipeline "$pipeline" --out "$OUT/ten.tgm" --durable yes
        done
    done
    for who in $(with tensogram); do run "$who" ten_verify tgm_verify_file "$DATA/ten-none.tgm"; done
fi
if want command_line; then
    # `tet FILE` and `tet verify FILE`, each a process.
    once "$DATA/degree.f64" "$OURS" make "$DATA/degree.f64" --shape 181,720 --runs 0
    once "$DATA/thousand.tgm" "$OURS" tgm_write "$DATA/degree.f64" --shape 181,360 --pipeline sp16 --count 1000 --out "$DATA/thousand.tgm" --runs 0
    run tesseral tet_thousand_messages command - --query "$TARGET/release/tet $DATA/thousand.tgm"
    cube tesseral raw
    run tesseral tet_array command - --query "$TARGET/release/tet $FILE"
    run tesseral tet_verify command - --query "$TARGET/release/tet verify $FILE"
fi

