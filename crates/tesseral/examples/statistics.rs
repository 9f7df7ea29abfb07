//! Prints the mean over one dimension, one for each position of the others.
//!
//! `statistics PATH ARRAY DIM [SELECTION…]`: `statistics weather.tet temperature time lat=40..60`

use tesseral::StatSet;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, name, dim, selection @ ..] = arguments.as_slice() else {
        return Err("usage: statistics PATH ARRAY DIM [SELECTION…]".into());
    };
    let container = tesseral::open(path)?;
    let array = container.array(name)?;
    let selection = array.select(selection.iter().map(String::as_str))?;

    // One pass for all statistics; chunks with exact stored statistics are not read.
    let whole = array.summary(&selection, StatSet::ALL)?;
    let or_none = |value: Option<f64>| value.map_or("none".to_owned(), |v| v.to_string());
    eprintln!("{} cells, mean {}, std {}", whole.count(), or_none(whole.mean()), or_none(whole.std()));

    let axis = array.schema().dim(dim)?;
    let means = array.reduce(&selection, &[axis], StatSet::SUM)?;
    eprintln!("means over {dim}, of shape {:?}", means.shape);
    let row = means.shape.last().map_or(1, |&n| usize::try_from(n).unwrap_or(usize::MAX)).max(1);
    for means in means.mean().chunks(row) {
        let shown: Vec<String> = means.iter().map(|mean| or_none(*mean)).collect();
        println!("{}", shown.join(" "));
    }
    Ok(())
}
