use proptest::prelude::*;

use super::*;

/// Mappings as the reference writes them: of the file `b.h5` and of the file itself.
fn serialized(selections: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut out = vec![0];
    out.extend_from_slice(&(selections.len() as u64).to_le_bytes());
    for (source, target) in selections {
        out.extend_from_slice(b"b.h5\0/x\0");
        out.extend_from_slice(source);
        out.extend_from_slice(target);
    }
    let sum = jenkins_lookup3(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

fn regular(axes: &[[u64; 4]]) -> Vec<u8> {
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|n| n.to_le_bytes()).collect() };
    let mut out = words(&[BOXES, 3]);
    out.extend_from_slice(&[REGULAR, 8]);
    out.extend(words(&[u32::try_from(axes.len()).unwrap()]));
    out.extend(axes.iter().flatten().flat_map(|n| n.to_le_bytes()));
    out
}

fn all() -> Vec<u8> {
    [ALL, 1, 0, 0].iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn parse(bytes: &[u8]) -> Result<Vec<Mapping>> {
    Mapping::parse_all("test", bytes, 8)
}

#[test]
fn every_truncation_is_an_error() {
    let target = regular(&[[0, 4, 3, 2], [1, 1, 1, 5]]);
    let whole = serialized(&[(&all(), &target), (&target, &target)]);
    let mappings = parse(&whole).unwrap();
    assert_eq!(mappings.len(), 2);
    assert_eq!(mappings[0].names(7), ("b.h5".to_owned(), "/x".to_owned()));
    for len in 0..whole.len() {
        assert!(parse(&whole[..len]).is_err(), "{len}");
        // With a checksum that fits.
        let mut short = whole[..len].to_vec();
        short.extend_from_slice(&jenkins_lookup3(&short).to_le_bytes());
        assert!(parse(&short).is_err() || len + 4 == whole.len(), "{len}");
    }
}

#[test]
fn names_and_numbers_of_damaged_mappings_are_checked() {
    let with_sum = |mut bytes: Vec<u8>| {
        bytes.extend_from_slice(&jenkins_lookup3(&bytes).to_le_bytes());
        parse(&bytes)
    };
    // A name of an earlier mapping where there is none, more mappings than bytes, an unknown version.
    let mut shared = vec![1, 1, 0, 0, 0, 0, 0, 0, 0, SHARED_FILE];
    shared.extend_from_slice(&[0; 64]);
    let mut many = vec![0];
    many.extend_from_slice(&u64::MAX.to_le_bytes());
    for bytes in [shared, many, vec![2, 0, 0, 0, 0, 0, 0, 0, 0]] {
        assert!(with_sum(bytes).is_err());
    }
}

#[test]
fn numbers_and_percent_signs_of_names() {
    let target = regular(&[[0, 2, UNLIMITED, 2]]);
    let source = regular(&[[0, 1, 1, 2]]);
    let mut mapping = parse(&serialized(&[(&source, &target)])).unwrap().remove(0);
    (mapping.file, mapping.dataset) = ("a%%b-%b.h5".to_owned(), "/x%b".to_owned());
    assert!(mapping.is_numbered());
    let third = mapping.numbered(3).unwrap();
    assert_eq!(third.names(0), ("a%b-3.h5".to_owned(), "/x3".to_owned()));
    assert_eq!((third.end(0, None), third.grows()), (Some(8), None));
}

/// Positions of both selections, in order.
fn positions(blocks: &AxisBlocks) -> Vec<u64> {
    (0..blocks.positions.unwrap()).map(|at| blocks.position(at)).collect()
}

fn blocks() -> impl Strategy<Value = AxisBlocks> {
    (0_u64..4, 1_u64..4, 0_u64..4, 0_u64..3)
        .prop_map(|(start, block, count, gap)| AxisBlocks::new(start, block + gap, count, block).unwrap())
}

proptest! {
    #[test]
    fn positions_below_an_extent_are_counted(blocks in blocks(), extent in 0_u64..30) {
        let expected = positions(&blocks).iter().filter(|at| **at < extent).count() as u64;
        prop_assert_eq!(blocks.below(extent), expected);
        prop_assert_eq!(blocks.end(blocks.positions.unwrap()), positions(&blocks).last().map_or(0, |at| at + 1));
    }

    #[test]
    fn boxes_pair_the_positions_in_order(
        theirs in blocks(), own in blocks(), from in 0_u64..12, len in 0_u64..12, extent in 0_u64..24,
    ) {
        // As many positions on both sides.
        let positions_of_both = theirs.positions.min(own.positions);
        let (theirs, own) = (AxisBlocks { positions: positions_of_both, ..theirs }, AxisBlocks { positions: positions_of_both, ..own });
        // An axis with one position, on one side only.
        let map = BoxMap::new(vec![theirs, AxisBlocks::range(2, 3)], vec![own], None).unwrap();
        let window = Region::new([(from, from + len)]);
        let mut found = Vec::new();
        for pair in map.touching(&window, &[extent, 3], |_| Ok(())).unwrap() {
            let (source, target) = (pair.source.bounds()[0], pair.target.bounds()[0]);
            prop_assert_eq!(pair.source.bounds()[1], (2, 3));
            found.extend((source.0..source.1).zip(target.0..target.1));
        }
        let expected: Vec<(u64, u64)> = positions(&theirs).into_iter().zip(positions(&own))
            .filter(|(there, here)| *there < extent && (from..from + len).contains(here)).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn uncovered_boxes_are_the_rest(boxes in prop::collection::vec((0_u64..6, 0_u64..6, 0_u64..5, 0_u64..5), 0..6)) {
        let boxes: Vec<Region> = boxes.iter().map(|(x, y, w, h)| Region::new([(*x, x + w), (*y, y + h)]))
            .filter(|one| !one.is_empty()).collect();
        let window = Region::new([(1, 8), (0, 7)]);
        let rest = uncovered(&window, &boxes, &|_| Ok(())).unwrap();
        for x in 1..8 {
            for y in 0..7 {
                let inside = |one: &&Region| one.contains(&Region::new([(x, x + 1), (y, y + 1)]));
                let covered = boxes.iter().any(|one| inside(&one));
                prop_assert_eq!(rest.iter().filter(inside).count(), usize::from(!covered), "{} {}", x, y);
            }
        }
    }
}

#[test]
fn listed_boxes_of_regular_selections_are_blocks() {
    let boxes = |bounds: &[[(u64, u64); 2]]| bounds.iter().map(|one| Region::new(*one)).collect::<Vec<_>>();
    let listed = boxes(&[
        [(1, 2), (0, 3)],
        [(1, 2), (5, 8)],
        [(4, 5), (0, 3)],
        [(4, 5), (5, 8)],
        [(7, 8), (0, 3)],
        [(7, 8), (5, 8)],
    ]);
    let axes = regular_blocks(&listed).unwrap();
    assert_eq!(positions(&axes[0]), [1, 4, 7]);
    assert_eq!(positions(&axes[1]), [0, 1, 2, 5, 6, 7]);
    // One is missing, one is listed twice, distances or lengths differ.
    assert_eq!(regular_blocks(&listed[1..]), None);
    assert_eq!(regular_blocks(&[&listed[1..], &listed[1..2]].concat()), None);
    assert_eq!(regular_blocks(&boxes(&[[(0, 1), (0, 1)], [(2, 3), (0, 1)], [(5, 6), (0, 1)]])), None);
    assert_eq!(regular_blocks(&boxes(&[[(0, 1), (0, 1)], [(2, 4), (0, 1)]])), None);
}

#[test]
fn the_work_of_uncovered_boxes_is_limited() {
    let boxes: Vec<Region> = (0..2000).map(|at| Region::new([(at, at + 2000), (at, at + 1)])).collect();
    let admit =
        |steps: u64| if steps > 100_000 { Err(Error::limit("steps", steps, 100_000)) } else { Ok(()) };
    assert!(uncovered(&Region::new([(0, 5000), (0, 5000)]), &boxes, &admit).is_err());
}
