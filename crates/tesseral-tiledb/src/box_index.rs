//! Which boxes overlap a box, without comparing all of them.

use tesseral_core::Region;

/// Boxes of the fragments of a dense array, ordered along one dimension.
#[derive(Debug)]
pub(crate) struct BoxIndex<'a> {
    dim: usize,
    /// Boxes with their layers, by their start along the dimension.
    boxes: Vec<(usize, &'a Region)>,
    /// The largest end below each node of a binary tree over `boxes`; node 1 is the root, the leaves are the second half.
    ends: Vec<u64>,
}

impl<'a> BoxIndex<'a> {
    /// Indexes boxes along the dimension in which they have most different starts.
    pub(crate) fn new(boxes: impl Iterator<Item = (usize, &'a Region)>) -> Self {
        let mut boxes: Vec<_> = boxes.filter(|(_, region)| !region.is_empty()).collect();
        let rank = boxes.first().map_or(0, |(_, region)| region.rank());
        let different_starts = |dim: &usize| {
            let mut starts: Vec<u64> = boxes.iter().map(|(_, region)| region.start(*dim)).collect();
            starts.sort_unstable();
            starts.dedup();
            starts.len()
        };
        let dim = (0..rank).max_by_key(different_starts);
        let Some(dim) = dim else { return Self { dim: 0, boxes: Vec::new(), ends: Vec::new() } };
        boxes.sort_by_key(|(_, region)| region.start(dim));
        let leaves = boxes.len().next_power_of_two();
        let mut ends = vec![0; 2 * leaves];
        for (end, (_, region)) in ends[leaves..].iter_mut().zip(&boxes) {
            *end = region.end(dim);
        }
        for node in (1..leaves).rev() {
            ends[node] = ends[2 * node].max(ends[2 * node + 1]);
        }
        Self { dim, boxes, ends }
    }

    /// Whether a box of a higher layer overlaps `region`.
    pub(crate) fn overlapped_above(&self, layer: usize, region: &Region) -> bool {
        if self.boxes.is_empty() || region.is_empty() {
            return false;
        }
        let begun = self.boxes.partition_point(|(_, other)| other.start(self.dim) < region.end(self.dim));
        let leaves = self.ends.len() / 2;
        // Nodes to look at, with the number of their first leaf and of their leaves.
        let mut open = vec![(1, 0, leaves)];
        while let Some((node, first, count)) = open.pop() {
            if first >= begun || self.ends[node] <= region.start(self.dim) {
                continue;
            }
            if count > 1 {
                let half = count / 2;
                open.push((2 * node, first, half));
                open.push((2 * node + 1, first + half, half));
                continue;
            }
            let (other_layer, other) = self.boxes[first];
            let meets = |(a, b): (&(u64, u64), &(u64, u64))| a.0 < b.1 && b.0 < a.1;
            if other_layer > layer && other.bounds().iter().zip(region.bounds()).all(meets) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_those_of_a_comparison_with_every_box() {
        let mut state = 7_u64;
        let mut next = |most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % most
        };
        for count in [0, 1, 2, 3, 7, 8, 9, 60] {
            for side in [4, 20, 200] {
                let mut region =
                    || Region::new([0, 1].map(|_| (next(side), next(9))).map(|(a, n)| (a, a + n)));
                let boxes: Vec<Region> = (0..count).map(|_| region()).collect();
                let index = BoxIndex::new(boxes.iter().enumerate());
                for _ in 0..50 {
                    let query = region();
                    for layer in 0..=boxes.len() {
                        let above = boxes.iter().skip(layer + 1);
                        let expected = above.into_iter().any(|other| other.intersect(&query).is_some());
                        assert_eq!(index.overlapped_above(layer, &query), expected, "{boxes:?} {query:?}");
                    }
                }
            }
        }
    }
}
