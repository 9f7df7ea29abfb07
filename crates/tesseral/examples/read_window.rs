//! Reads a window of an array and prints it, row by row.
//!
//! `read_window PATH ARRAY [SELECTION…]`: `read_window weather.tet temperature time=@2024-07 lat=-10..10 lon=0:3`

use tesseral::Scalar;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, name, selection @ ..] = arguments.as_slice() else {
        return Err("usage: read_window PATH ARRAY [SELECTION…]".into());
    };
    let container = tesseral::open(path)?;
    let array = container.array(name)?;
    let selection = array.select(selection.iter().map(String::as_str))?;

    // The plan is known before anything is read.
    eprintln!("{name} in {}: {}", container.format().title(), array.explain(&selection)?);

    let window = array.read(&selection)?;
    eprintln!(
        "shape {:?}, {}",
        window.shape,
        if window.is_borrowed() { "a view of the file" } else { "a copy" }
    );

    // `as_slice::<f32>()` returns numbers if the dtype is known; this prints any dtype.
    let dtype = window.field.dtype;
    let cell = window.field.cell_size().ok_or("cells have no one size")?;
    let row = window.shape.last().map_or(1, |&n| usize::try_from(n).unwrap_or(usize::MAX)).max(1);
    for cells in window.bytes().chunks(cell.saturating_mul(row)) {
        let values: tesseral::Result<Vec<String>> =
            cells.chunks_exact(cell).map(|one| Ok(Scalar::from_le_bytes(dtype, one)?.to_string())).collect();
        println!("{}", values?.join(" "));
    }
    Ok(())
}
