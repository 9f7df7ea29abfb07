//! Lists the variables of a dataset with their dimensions and units, without reading cells.
//!
//! `list_dataset PATH`

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: list_dataset PATH")?;
    let container = tesseral::open(&path)?;
    println!("{path}: {}", container.format().title());
    for index in 0..container.len() {
        let array = container.array_at(index)?;
        let schema = array.schema();
        let extent = |extent: Option<u64>| extent.map_or_else(|| "any".to_owned(), |n| n.to_string());
        let dims: Vec<String> =
            schema.dims.iter().map(|dim| format!("{} {}", dim.name, extent(dim.extent))).collect();
        let units =
            array.field_attributes().get("units").map_or_else(String::new, |units| format!(" [{units}]"));
        println!(
            "{} ({}) {}{units}",
            array.variable_name(),
            dims.join(", "),
            array.selected_field().type_name()
        );
    }
    Ok(())
}
