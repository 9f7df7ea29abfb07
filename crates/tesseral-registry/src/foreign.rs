//! Files that no format of this build reads, and the way in for their data.

use tesseral_core::Advice;
use tesseral_format::Probe;

/// Recognition of a kind of file, and a hint for it.
struct Foreign {
    /// First bytes.
    magic: &'static [u8],
    /// File extensions, with the dot.
    extensions: &'static [&'static str],
    advice: &'static str,
}

const FOREIGN: [Foreign; 15] = [
    Foreign {
        magic: b"FEA1",
        extensions: &[],
        advice: "this is a Feather file of version 1: write it again with the Python package pyarrow \
                 (pyarrow.feather.write_feather(pyarrow.feather.read_table(source), \"out.feather\"))",
    },
    Foreign {
        magic: b"PK\x03\x04",
        extensions: &[".zip"],
        advice: "this is a ZIP archive: unpack it; an archive of .npy files can be read directly",
    },
    Foreign {
        magic: b"PK\x03\x04",
        extensions: &[".xlsx", ".xlsm", ".ods"],
        advice: "this is a spreadsheet: save the sheet as CSV, or read it with the Python package pandas \
                 (pandas.read_excel(source).to_csv(\"out.csv\", index=False))",
    },
    Foreign {
        magic: b"II*\0",
        extensions: &[".tif", ".tiff"],
        advice: "this is a TIFF file: convert it with GDAL (gdal_translate -of netCDF source out.nc), or open it with the Python package \
                 rioxarray",
    },
    Foreign {
        magic: b"MM\0*",
        extensions: &[],
        advice: "this is a TIFF file: convert it with GDAL (gdal_translate -of netCDF source out.nc), or open it with the Python package \
                 rioxarray",
    },
    Foreign {
        magic: b"MATLAB 5.0",
        extensions: &[".mat"],
        advice: "this is a Matlab file: read it with the Python package scipy (scipy.io.loadmat), or save it in Matlab with -v7.3, which is HDF5",
    },
    Foreign {
        magic: b"SIMPLE  =",
        extensions: &[".fits", ".fit"],
        advice: "this is a FITS file: read it with the Python package astropy (astropy.io.fits) and write its arrays from there",
    },
    Foreign {
        magic: b"BUFR",
        extensions: &[".bufr"],
        advice: "this is a BUFR file: read it with the Python package pdbufr as a data frame and write it as CSV",
    },
    Foreign {
        magic: b"\xfd7zXZ\0",
        extensions: &[".xz"],
        advice: "this is a file compressed by xz: unpack it with unxz first",
    },
    Foreign {
        magic: b"SQLite format 3\0",
        extensions: &[".sqlite", ".db"],
        advice: "this is an SQLite database: export a table as CSV (sqlite3 -header -csv source 'select * from t' > out.csv)",
    },
    Foreign {
        magic: b"SQLite format 3\0",
        extensions: &[".gpkg"],
        advice: "this is a GeoPackage: export a layer as CSV with GDAL (ogr2ogr out.csv source layer), or a raster with gdal_translate",
    },
    Foreign {
        magic: b"\x1f\x8b",
        extensions: &[".gz", ".tgz"],
        advice: "this is a file compressed by gzip: unpack it with gunzip first",
    },
    Foreign {
        magic: b"BZh",
        extensions: &[".bz2"],
        advice: "this is a file compressed by bzip2: unpack it with bunzip2 first",
    },
    Foreign {
        magic: b"\x28\xb5\x2f\xfd",
        extensions: &[".zst"],
        advice: "this is a file compressed by Zstandard: unpack it with unzstd first",
    },
    Foreign {
        magic: b"\x0e\x03\x13\x01",
        extensions: &[".hdf4"],
        advice: "this is an HDF4 file: convert it to HDF5 with h4toh5",
    },
];

/// The way in for the data of a source that no format recognizes.
pub(crate) fn advice(probe: &Probe<'_>) -> Option<Advice> {
    let name = probe.name.to_ascii_lowercase();
    let by_content = |foreign: &&Foreign| !foreign.magic.is_empty() && probe.head.starts_with(foreign.magic);
    let by_name = |foreign: &&Foreign| foreign.extensions.iter().any(|extension| name.ends_with(extension));
    // Several kinds are archives of one kind.
    let by_both = |foreign: &&Foreign| by_content(foreign) && by_name(foreign);
    let mut found = FOREIGN.iter().find(by_both);
    found = found.or_else(|| FOREIGN.iter().find(by_content));
    let found = found.or_else(|| FOREIGN.iter().find(by_name))?;
    Some(Advice::Text(found.advice.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_files_have_a_way_in() {
        let words = |name, head: &[u8]| {
            advice(&Probe { name, head, entries: None }).map(|advice| advice.to_string()).unwrap_or_default()
        };
        // The content counts more than the name.
        assert!(words("x.csv", b"FEA1").contains("pyarrow"));
        assert!(words("x.xlsx", b"PK\x03\x04").contains("spreadsheet"));
        assert!(words("x.zip", b"PK\x03\x04").contains(".npy"));
        assert!(words("x", b"MM\0*").contains("gdal_translate"));
        assert!(words("x.mat", b"").contains("scipy"));
        assert!(words("x.gpkg", b"SQLite format 3\0").contains("ogr2ogr"));
        assert!(words("x", b"SQLite format 3\0").contains("sqlite3"));
        assert_eq!(words("x.bin", b"????"), "");
    }
}
