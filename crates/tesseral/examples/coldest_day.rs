//! Finds the day with the lowest mean over a region: groups of times, in any calendar and any format.
//!
//! `coldest_day PATH ARRAY SELECTION…`: `coldest_day air.nc air lat=44..48 lon=5..15`

use tesseral::fold::{Answer, Statistic};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, name, selection @ ..] = arguments.as_slice() else {
        return Err("usage: coldest_day PATH ARRAY SELECTION…".into());
    };
    // Packed numbers as the physical values that they mean.
    let container = tesseral::open(path)?.physical();
    let array = container.array(name)?;
    let (array, selection) = array.narrowed(selection.iter().map(String::as_str))?;
    let asked = array.reduction(vec![Statistic::Mean])?.select(selection).by("time.date")?.resolve()?;
    let answers = asked.ask()?;
    let groups = asked.axes().iter().find_map(|axis| axis.groups.as_ref()).ok_or("times have no dates")?;
    let means = answers.columns[0].iter().zip(&groups.numbers).filter_map(|(answer, number)| match answer {
        Answer::Float(mean) => Some((*mean, *number)),
        _ => None,
    });
    let (mean, number) = means.min_by(|a, b| a.0.total_cmp(&b.0)).ok_or("no cell has a value")?;
    println!("{} {mean}", groups.part.text(number));
    Ok(())
}
