//! Which adjacent fragments cover a box together: merging others would write the unwritten cells between them.

use std::ops::Range;

use tesseral_core::Region;

use super::dense::bounding_box;

/// Number of disjoint boxes up to which later fragments that fill gaps of earlier ones are searched.
const MAX_BOXES: usize = 64;
/// Number of comparisons of boxes in a run of fragments that are considered as a whole.
const MAX_STEPS: usize = 50_000_000;

/// Divides fragments, by their regions, into ranges that each cover a box. A range of one is a fragment without a partner.
pub(super) fn boxes(regions: &[Region]) -> Vec<Range<usize>> {
    if covers_box(regions) {
        let all = 0..regions.len();
        return Vec::from([all]);
    }
    let mut out = Vec::new();
    let mut start = 0;
    while start < regions.len() {
        let mut union = Union::default();
        let mut end = start + 1;
        for (i, region) in regions.iter().enumerate().skip(start) {
            union.add(region);
            if union.is_box() {
                end = i + 1;
            }
            if union.boxes.len() > MAX_BOXES {
                break;
            }
        }
        out.push(start..end);
        start = end;
    }
    out
}

/// Returns whether all regions cover a box; false if they are too many to find out.
fn covers_box(regions: &[Region]) -> bool {
    let mut union = Union::default();
    let mut steps = 0_usize;
    for region in regions {
        steps = steps.saturating_add(union.boxes.len());
        if steps > MAX_STEPS {
            return false;
        }
        union.add(region);
    }
    union.is_box()
}

/// The cells of several regions, as disjoint boxes.
#[derive(Default)]
struct Union {
    boxes: Vec<Region>,
}

impl Union {
    fn is_box(&self) -> bool {
        let cells = |region: &Region| {
            region.bounds().iter().fold(1_u128, |n, (a, b)| n.saturating_mul(u128::from(b - a)))
        };
        let whole = bounding_box(&self.boxes).map_or(0, |region| cells(&region));
        self.boxes.iter().map(cells).fold(0_u128, u128::saturating_add) == whole
    }

    fn add(&mut self, region: &Region) {
        let mut pieces = vec![region.clone()];
        for known in &self.boxes {
            pieces = pieces.iter().flat_map(|piece| without(piece, known)).collect();
        }
        for mut piece in pieces {
            // Joined boxes can be joined with others.
            while let Some((i, whole)) =
                self.boxes.iter().enumerate().find_map(|(i, known)| Some((i, joined(known, &piece)?)))
            {
                self.boxes.swap_remove(i);
                piece = whole;
            }
            self.boxes.push(piece);
        }
    }
}

/// The cells of a box outside another one, as disjoint boxes.
fn without(piece: &Region, known: &Region) -> Vec<Region> {
    let Some(common) = piece.intersect(known) else { return vec![piece.clone()] };
    let mut out = Vec::new();
    let mut rest = piece.bounds().to_vec();
    for d in 0..rest.len() {
        let (start, end) = rest[d];
        for outside in [(start, common.start(d)), (common.end(d), end)] {
            if outside.0 < outside.1 {
                let mut bounds = rest.clone();
                bounds[d] = outside;
                out.push(Region::new(bounds));
            }
        }
        rest[d] = (common.start(d), common.end(d));
    }
    out
}

/// The box of two disjoint boxes that touch along one dimension and agree in the others.
fn joined(a: &Region, b: &Region) -> Option<Region> {
    let mut differing = (0..a.rank()).filter(|d| a.bounds()[*d] != b.bounds()[*d]);
    let (d, None) = (differing.next()?, differing.next()) else { return None };
    (a.end(d) == b.start(d) || b.end(d) == a.start(d)).then(|| bounding_box([a, b])).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(bounds: &[(u64, u64)]) -> Region {
        Region::new(bounds.iter().copied())
    }

    fn whole(count: usize) -> Vec<Range<usize>> {
        Vec::from([Range { start: 0, end: count }])
    }

    #[test]
    fn fragments_that_cover_a_box_are_one_range() {
        let quarters = [(0, 0), (2, 2), (0, 2), (2, 0)].map(|(x, y)| region(&[(x, x + 2), (y, y + 2)]));
        assert_eq!(boxes(&quarters), whole(4));
        assert_eq!(boxes(&quarters[..3]), [0..1, 1..3], "the last two are a half");
        let days: Vec<Region> = (0..100).map(|day| region(&[(day, day + 1), (0, 7)])).collect();
        assert_eq!(boxes(&days), whole(100));
        let overlapping = [region(&[(0, 5)]), region(&[(3, 9)]), region(&[(1, 2)])];
        assert_eq!(boxes(&overlapping), whole(3));
    }

    #[test]
    fn fragments_with_gaps_stay_apart() {
        let line = [(0, 2), (2, 4), (8, 9), (9, 12), (6, 8)].map(|bound| region(&[bound]));
        assert_eq!(boxes(&line), [0..2, 2..5]);
        assert_eq!(boxes(&line[..3]), [0..2, 2..3]);
        let corner = [region(&[(0, 4), (0, 4)]), region(&[(0, 5), (0, 2)])];
        assert_eq!(boxes(&corner), [0..1, 1..2]);
    }

    #[test]
    fn unions_agree_with_cells() {
        // A fixed sequence of boxes in 6 × 6 cells, compared with marked cells.
        let mut state = 7_u64;
        let mut next = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        for _ in 0..200 {
            let mut union = Union::default();
            let mut marked = [[false; 6]; 6];
            for _ in 0..5 {
                let (x, y) = (next(5), next(5));
                let (w, h) = (1 + next(6 - x), 1 + next(6 - y));
                union.add(&region(&[(x, x + w), (y, y + h)]));
                for row in &mut marked[x as usize..(x + w) as usize] {
                    row[y as usize..(y + h) as usize].fill(true);
                }
            }
            let cells: u64 = union.boxes.iter().filter_map(Region::cells).sum();
            assert_eq!(cells, marked.iter().flatten().filter(|m| **m).count() as u64);
            for (i, a) in union.boxes.iter().enumerate() {
                assert!(union.boxes[i + 1..].iter().all(|b| a.intersect(b).is_none()));
            }
        }
    }
}
