//! Huffman coding with a stored tree.
//!
//! `i32` LE smallest symbol · `i32` BE number of nodes · `i32` BE half the symbol range · `u8` · left children · right children ·
//! symbols, `i32` each, minus the smallest · `u8` each: whether the node is a leaf. Children are `u8` for up to 256 nodes, `u16`
//! for up to 65536, else `u32`; nodes are numbered in preorder, left before right. Bits are read most significant first; 0 is left.

use tesseral_core::{Cursor, Result};

use super::fault;

/// Bits per table lookup.
const LOOK: u32 = 11;
/// The node of invalid codes.
const NOWHERE: u32 = u32::MAX;

/// Bytes of a child number in a tree of this many nodes.
fn child_width(nodes: usize) -> usize {
    match nodes {
        0..=256 => 1,
        257..=65536 => 2,
        _ => 4,
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct HuffmanNode {
    children: [u32; 2],
    symbol: i32,
    leaf: bool,
}

/// A parsed tree. Its shape is not validated: each step of a walk consumes a bit, so walks are finite.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<HuffmanNode>,
    /// For every code prefix: the node it leads to, and the bits consumed.
    table: Vec<(u32, u8)>,
}

impl Tree {
    pub(super) fn parse(reader: &mut Cursor<'_>) -> Result<Self> {
        let least = reader.i32("smallest symbol")?;
        let count = reader.array("node count").map(i32::from_be_bytes)?;
        reader.take(5, "tree header")?;
        let count = usize::try_from(count).ok().filter(|n| *n > 0 && *n <= reader.rest().len());
        let count = count.ok_or_else(|| fault("invalid number of Huffman tree nodes"))?;
        let width = child_width(count);
        let mut nodes = vec![HuffmanNode::default(); count];
        for side in 0..2 {
            for (node, bytes) in
                nodes.iter_mut().zip(reader.take(width * count, "children")?.chunks_exact(width))
            {
                let child = bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
                if child as usize >= count {
                    return Err(fault("Huffman tree node out of range"));
                }
                node.children[side] = child;
            }
        }
        for (node, bytes) in nodes.iter_mut().zip(reader.take(4 * count, "symbols of nodes")?.as_chunks().0) {
            node.symbol = i32::from_le_bytes(*bytes).wrapping_add(least);
        }
        for (node, leaf) in nodes.iter_mut().zip(reader.take(count, "leaf flags")?) {
            node.leaf = *leaf != 0;
        }
        let mut tree = Self { nodes, table: Vec::new() };
        tree.table = (0..1_u32 << LOOK).map(|bits| tree.follow_prefix(bits)).collect();
        Ok(tree)
    }

    /// Follows up to `LOOK` bits from the root.
    fn follow_prefix(&self, bits: u32) -> (u32, u8) {
        let mut node = 0;
        for taken in 0..LOOK {
            if self.nodes[node as usize].leaf {
                return (node, taken as u8);
            }
            node = self.nodes[node as usize].children[(bits >> (LOOK - 1 - taken) & 1) as usize];
            if node == 0 {
                return (NOWHERE, taken as u8 + 1);
            }
        }
        (node, LOOK as u8)
    }

    /// Decodes the symbols of a bit stream.
    pub(super) fn decode<'a>(&'a self, bits: &'a [u8]) -> Symbols<'a> {
        Symbols { tree: self, src: bits, acc: 0, have: 0 }
    }
}

/// A symbol decoder.
#[derive(Debug)]
pub(super) struct Symbols<'a> {
    tree: &'a Tree,
    src: &'a [u8],
    /// The top `have` bits are next; the bits below are zero.
    acc: u64,
    have: u32,
}

impl Symbols<'_> {
    fn refill(&mut self) {
        while self.have <= 56
            && let Some((byte, rest)) = self.src.split_first()
        {
            self.acc |= u64::from(*byte) << (56 - self.have);
            self.have += 8;
            self.src = rest;
        }
    }

    #[inline]
    fn skip(&mut self, n: u32) -> Result<()> {
        self.have = self.have.checked_sub(n).ok_or_else(|| fault("truncated Huffman codes"))?;
        self.acc <<= n;
        Ok(())
    }

    /// The next symbol.
    #[inline]
    pub(super) fn next(&mut self) -> Result<i32> {
        if self.have < LOOK {
            self.refill();
        }
        let (mut node, taken) = self.tree.table[(self.acc >> (64 - LOOK)) as usize];
        self.skip(taken.into())?;
        loop {
            let at = self.tree.nodes.get(node as usize).ok_or_else(|| fault("invalid Huffman code"))?;
            if at.leaf {
                return Ok(at.symbol);
            }
            if self.have == 0 {
                self.refill();
            }
            let bit = (self.acc >> 63) as usize;
            self.skip(1)?;
            node = match at.children[bit] {
                0 => NOWHERE,
                child => child,
            };
        }
    }
}

/// Appends the tree, the number of symbols, the length and the bits; there must be at least one symbol. The tree is built with
/// the same heap as in the reference, so that equal weights are merged in the same order.
pub(super) fn encode(symbols: &[i32], out: &mut Vec<u8>) {
    let (least, most) = symbols.iter().fold((i32::MAX, i32::MIN), |(a, b), s| (a.min(*s), b.max(*s)));
    let span = usize::try_from(i64::from(most) - i64::from(least) + 1).unwrap_or(1);
    let slot = |symbol: i32| usize::try_from(i64::from(symbol) - i64::from(least)).unwrap_or(0);
    let mut weights = vec![0_u64; span];
    symbols.iter().for_each(|symbol| weights[slot(*symbol)] += 1);
    let mut forest = Forest::default();
    for (symbol, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0) {
        forest.insert(HuffmanNode { symbol: symbol as i32, leaf: true, ..HuffmanNode::default() }, *weight);
    }
    let root = forest.grow();
    let mut flat = Vec::with_capacity(forest.nodes.len());
    let mut codes = vec![(0_u64, 0_u32); span];
    flatten(&forest, root, 0, 0, &mut flat, &mut codes);
    out.extend_from_slice(&least.to_le_bytes());
    for number in [flat.len() as u32, (span as u32).div_ceil(2)] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    out.push(0);
    let width = child_width(flat.len());
    for side in 0..2 {
        out.extend(flat.iter().flat_map(|node| node.children[side].to_le_bytes().into_iter().take(width)));
    }
    out.extend(flat.iter().flat_map(|node| node.symbol.to_le_bytes()));
    out.extend(flat.iter().map(|node| u8::from(node.leaf)));
    out.extend_from_slice(&(symbols.len() as u64).to_le_bytes());
    let bits: u64 = weights.iter().zip(&codes).map(|(weight, code)| weight * u64::from(code.1)).sum();
    out.extend_from_slice(&bits.div_ceil(8).to_le_bytes());
    let (mut acc, mut have) = (0_u128, 0);
    for symbol in symbols {
        let (code, len) = codes[slot(*symbol)];
        acc = acc << len | u128::from(code);
        have += len;
        while have >= 8 {
            have -= 8;
            out.push((acc >> have) as u8);
        }
    }
    if have > 0 {
        out.push((acc << (8 - have)) as u8);
    }
}

/// Numbers nodes from the root and assigns codes to leaves. The recursion depth is the code length: below 64 for any number of
/// symbols that fits in memory.
fn flatten(
    forest: &Forest,
    node: u32,
    code: u64,
    len: u32,
    flat: &mut Vec<HuffmanNode>,
    codes: &mut [(u64, u32)],
) -> u32 {
    let (at, from) = (flat.len(), forest.nodes[node as usize].0);
    flat.push(from);
    if from.leaf {
        codes[usize::try_from(from.symbol).unwrap_or(0)] = (code, len);
    } else {
        for (bit, side) in [(0, 0), (1, 1)] {
            let child = flatten(forest, from.children[side], code << 1 | bit, len + 1, flat, codes);
            flat[at].children[side] = child;
        }
    }
    at as u32
}

/// Subtrees to merge, the lightest at the top of a heap.
#[derive(Default)]
struct Forest {
    nodes: Vec<(HuffmanNode, u64)>,
    heap: Vec<u32>,
}

impl Forest {
    fn weight(&self, at: usize) -> u64 {
        self.nodes[self.heap[at] as usize].1
    }

    fn insert(&mut self, node: HuffmanNode, weight: u64) {
        let number = self.nodes.len() as u32;
        self.nodes.push((node, weight));
        self.heap.push(number);
        let mut at = self.heap.len() - 1;
        while at > 0 && self.weight((at - 1) / 2) > weight {
            self.heap.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn pop(&mut self) -> Option<u32> {
        let last = self.heap.len().checked_sub(1)?;
        self.heap.swap(0, last);
        let top = self.heap.pop();
        let mut at = 0;
        while 2 * at + 1 < self.heap.len() {
            let mut child = 2 * at + 1;
            if child + 1 < self.heap.len() && self.weight(child + 1) < self.weight(child) {
                child += 1;
            }
            if self.weight(at) <= self.weight(child) {
                break;
            }
            self.heap.swap(at, child);
            at = child;
        }
        top
    }

    /// Merges the two lightest subtrees until one is left; returns its root.
    fn grow(&mut self) -> u32 {
        loop {
            let first = self.pop().unwrap_or_default();
            let Some(second) = self.pop() else { return first };
            let weight = self.nodes[first as usize].1 + self.nodes[second as usize].1;
            self.insert(HuffmanNode { children: [first, second], ..HuffmanNode::default() }, weight);
        }
    }
}
