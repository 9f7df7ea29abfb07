//! Letters of pictures: strokes on a grid, drawn at any size.
//!
//! A glyph is a list of strokes, separated by spaces, each a chain of points of two digits: x from the left, y from the top. Capitals
//! are 6 high, the baseline is at 6, descenders reach 8. Obtuse corners are rounded.

/// Height of capitals in units of the grid.
const CAPITAL: f64 = 6.0;
/// Space between two letters.
const GAP: f64 = 2.0;
/// Width of a space.
const SPACE: f64 = 2.0;

/// A point of a picture.
pub(super) type Place = (f64, f64);

/// The strokes of a character; a box for those that have none.
#[rustfmt::skip]
fn glyph(c: char) -> &'static str {
    match c {
        '0' | 'O' => "103041453616050110", '1' => "112026 1636", '2' => "01103041420646",
        '3' => "01103041423313 334445361605", '4' => "36300444", '5' => "400002324345361605",
        '6' => "4130100105163645443303", '7' => "004016", '8' => "103041423313020110 133344453616050413",
        '9' => "0516364541301001021343",
        'A' => "062046 1434", 'B' => "06003041423303 3344453606", 'C' => "4130100105163645", 'D' => "06003041453606",
        'E' => "40000646 0333", 'F' => "400006 0333", 'G' => "41301001051636454323", 'H' => "0006 4046 0343",
        'I' => "0020 1016 0626", 'J' => "4045361605", 'K' => "0006 4004 1346", 'L' => "000646", 'M' => "0600234046",
        'N' => "06004640", 'P' => "06003041423303", 'Q' => "103041453616050110 3446", 'R' => "06003041423303 2346",
        'S' => "413010010213334445361605", 'T' => "0040 2026", 'U' => "000516364540", 'V' => "002640",
        'W' => "0016223640", 'X' => "0046 4006", 'Y' => "002340 2326", 'Z' => "00400646",
        'a' => "0312223336 341405162635", 'b' => "0006 0312223335261605", 'c' => "3322120305162635",
        'd' => "3036 3322120305162635", 'e' => "04343322120305162635", 'f' => "30201116 0222",
        'g' => "3237281807 3322120305162635", 'h' => "0006 0312223336", 'i' => "0206 0000", 'j' => "121708 1010",
        'k' => "0006 3205 1436", 'l' => "0006", 'm' => "0206 03122326 23324346", 'n' => "0206 0312223336",
        'o' => "122233352616050312", 'p' => "0208 0312223335261605", 'q' => "3238 3322120305162635",
        'r' => "0206 03122232", 's' => "3322120335261605", 't' => "10152636 0232", 'u' => "0205162635 3236",
        'v' => "022642", 'w' => "0216233642", 'x' => "0236 3206", 'y' => "0226 4218", 'z' => "02320636",
        '!' => "0004 0606", '"' => "0001 2021", '#' => "1016 3036 0242 0444", '%' => "4006 0101 4545",
        '&' => "4601102105162644", '\'' => "0001", '(' => "20111526", ')' => "00111506", '*' => "2125 0244 0442",
        '+' => "2125 0343", ',' => "1607", '-' | '\u{2212}' => "0333", '.' => "0606", '/' => "0640",
        ':' => "0303 0606", ';' => "1313 1607", '<' => "410345", '=' => "0242 0444", '>' => "014305",
        '?' => "01103041422324 2626", '[' => "20000626", ']' => "00202606", '\\' => "0046", '^' => "022042",
        '_' => "0747", '`' => "0011", '{' => "20111203141526", '}' => "00111223141506", '|' => "0008", '~' => "04132433",
        '°' => "1021120110", 'µ' | 'μ' => "0208 0205162635 3236", '×' => "1335 3315", '·' => "0404",
        '…' => "0606 2626 4646",
        _ => "0030360600",
    }
}

/// The strokes of a glyph as chains of points.
fn strokes(c: char) -> Vec<Vec<Place>> {
    let digit = |b: u8| f64::from(b - b'0');
    let chain = |stroke: &str| {
        stroke.as_bytes().chunks_exact(2).map(|pair| (digit(pair[0]), digit(pair[1]))).collect::<Vec<_>>()
    };
    glyph(c).split(' ').map(chain).filter(|chain| !chain.is_empty()).collect()
}

fn width(c: char) -> f64 {
    if c == ' ' {
        return SPACE;
    }
    strokes(c).iter().flatten().fold(0.0, |most: f64, (x, _)| most.max(*x))
}

/// Width of a text whose capitals have a height.
pub(super) fn text_width(text: &str, capital: f64) -> f64 {
    let units: f64 = text.chars().map(|c| width(c) + GAP).sum();
    (units - GAP).max(0.0) * capital / CAPITAL
}

/// The strokes of a text from its left end on the baseline, with capitals of a height.
pub(super) fn text_strokes(text: &str, capital: f64) -> Vec<Vec<Place>> {
    let scale = capital / CAPITAL;
    let mut at = 0.0;
    let mut out = Vec::new();
    for c in text.chars() {
        if c != ' ' {
            let placed = |chain: Vec<Place>| {
                let chain = rounded(&chain);
                chain.into_iter().map(|(x, y)| ((x + at) * scale, (y - CAPITAL) * scale)).collect::<Vec<_>>()
            };
            out.extend(strokes(c).into_iter().map(placed));
        }
        at += width(c) + GAP;
    }
    out
}

/// Cuts obtuse corners twice, which makes curves of them.
fn rounded(chain: &[Place]) -> Vec<Place> {
    let mut points = chain.to_vec();
    let closed = chain.len() > 3 && chain.first() == chain.last();
    for _ in 0..2 {
        let n = points.len();
        let mut next = Vec::with_capacity(2 * n);
        for i in 0..n {
            let (before, after) = match (i, closed) {
                (0, true) => (points[n - 2], points[1]),
                (i, true) if i + 1 == n => {
                    next.push(next[0]);
                    continue;
                }
                (0, false) => {
                    next.push(points[0]);
                    continue;
                }
                (i, _) if i + 1 == n => {
                    next.push(points[i]);
                    continue;
                }
                (i, _) => (points[i - 1], points[i + 1]),
            };
            if is_obtuse(before, points[i], after) {
                next.push(between(points[i], before));
                next.push(between(points[i], after));
            } else {
                next.push(points[i]);
            }
        }
        points = next;
    }
    points
}

fn between(a: Place, b: Place) -> Place {
    (a.0 + (b.0 - a.0) / 4.0, a.1 + (b.1 - a.1) / 4.0)
}

fn is_obtuse(before: Place, at: Place, after: Place) -> bool {
    let (ax, ay, bx, by) = (at.0 - before.0, at.1 - before.1, after.0 - at.0, after.1 - at.1);
    let lengths = (ax.hypot(ay) * bx.hypot(by)).max(1e-9);
    (ax * bx + ay * by) / lengths > 0.45
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_printable_character_has_strokes_on_the_grid() {
        for c in (33..127).map(char::from).chain("°µ×·…".chars()) {
            let strokes = strokes(c);
            assert!(!strokes.is_empty(), "{c:?}");
            assert!(glyph(c).split(' ').all(|stroke| stroke.len() % 2 == 0), "{c:?}");
            assert!(strokes.iter().flatten().all(|(x, y)| *x <= 4.0 && *y <= 8.0), "{c:?}");
        }
    }

    #[test]
    fn widths_add_up() {
        assert_eq!(text_width("", 6.0), 0.0);
        assert_eq!(text_width("LL", 6.0), 10.0);
        assert_eq!(text_width("LL", 12.0), 20.0);
    }
}
