//! Selects cells by coordinates and positions, and reads them as an array of the crate `ndarray`.
//!
//! `select_typed PATH ARRAY LAT_LOW LAT_HIGH`: `select_typed weather.tet temperature 40 60`

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, name, low, high] = arguments.as_slice() else {
        return Err("usage: select_typed PATH ARRAY LAT_LOW LAT_HIGH".into());
    };
    let (low, high): (f64, f64) = (low.parse()?, high.parse()?);
    let container = tesseral::open(path)?;
    let array = container.array(name)?;
    let part = array.isel("time", 0)?.sel("lat", low..=high)?;
    let cells = part.read_as::<f32>()?;
    println!("shape {:?}, mean {:?}", cells.shape(), cells.mean());

    // Larger than memory: block by block.
    for block in array.isel("time", ..)?.blocks(16 << 20)? {
        let (selection, cells) = block?;
        println!("{:?}: {} bytes", selection.shape(), cells.bytes().len());
    }
    Ok(())
}
