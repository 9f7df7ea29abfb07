//! Writes one message from a recipe on standard input, or decodes a file incrementally.
//!
//! `tgm_message encode < RECIPE` with `{"out", "mode": "buffered" | "streamed" | "backfilled", "time", "uuid", "encoder": [name,
//! version], "hash", "aggregate", "allow", "base", "extra", "objects": [{"descriptor", "file", "preceder"}]}`;
//! `tgm_message push FILE PIECE` prints one line of JSON per event.

use std::io::{Read, Write};

use serde_json::{Value as Json, json};
use tesseral_tensogram::wire::cbor::{CborItem, ErrorLocation, Map};
use tesseral_tensogram::{
    AggregateHash, DataObjectDescriptor, DecodeOptions, EncodeOptions, Event, GlobalMetadata, MaskOptions,
    Provenance, PushDecoder, Stamp, StreamingEncoder, encode,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn item(json: &Json) -> CborItem {
    match json {
        Json::Null => CborItem::Null,
        Json::Bool(value) => CborItem::Bool(*value),
        Json::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(n), _) => CborItem::UInt(n),
            (None, Some(n)) => CborItem::Negative(!n as u64),
            _ => CborItem::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => CborItem::Text(text.clone()),
        Json::Array(items) => CborItem::Array(items.iter().map(item).collect()),
        Json::Object(map) => CborItem::map(map.iter().map(|(key, value)| (key.clone(), item(value)))),
    }
}

fn map(json: &Json) -> Map {
    item(json).into_map().unwrap_or_default()
}

fn text(json: &Json) -> String {
    json.as_str().unwrap_or_default().to_owned()
}

fn options(recipe: &Json) -> EncodeOptions {
    let stamp = |key: &str| recipe[key].as_str().map_or(Stamp::Omit, |text| Stamp::Pinned(text.to_owned()));
    let mut provenance = Provenance { time: stamp("time"), uuid: stamp("uuid"), ..Provenance::default() };
    if recipe["encoder"].is_array() {
        provenance.encoder = (text(&recipe["encoder"][0]), text(&recipe["encoder"][1]));
    }
    let aggregate_hash = match recipe["aggregate"].as_str() {
        Some("none") => AggregateHash::None,
        Some("header") => AggregateHash::Header,
        Some("footer") => AggregateHash::Footer,
        Some("both") => AggregateHash::Both,
        _ => AggregateHash::Auto,
    };
    let masks = if recipe["allow"] == true { MaskOptions::any() } else { MaskOptions::default() };
    EncodeOptions {
        hashing: recipe["hash"] != false,
        aggregate_hash,
        masks,
        provenance,
        ..EncodeOptions::default()
    }
}

fn write(recipe: &Json) -> Outcome<()> {
    let options = options(recipe);
    let base = recipe["base"].as_array().map_or_else(Vec::new, |base| base.iter().map(map).collect());
    let metadata = GlobalMetadata { base, extra: map(&recipe["extra"]), ..GlobalMetadata::default() };
    let mut objects = Vec::new();
    for object in recipe["objects"].as_array().into_iter().flatten() {
        let place = ErrorLocation { what: "descriptor", object: "the recipe", offset: 0 };
        let descriptor = DataObjectDescriptor::from_item(item(&object["descriptor"]), place)?;
        objects.push((descriptor, std::fs::read(text(&object["file"]))?, map(&object["preceder"])));
    }
    let out = std::fs::File::create(text(&recipe["out"]))?;
    if recipe["mode"] == "buffered" {
        let objects: Vec<_> = objects.iter().map(|(d, cells, _)| (d, &cells[..])).collect();
        (&out).write_all(&encode(&metadata, &objects, &options)?)?;
        return Ok(());
    }
    let mut stream = StreamingEncoder::new(out, &metadata, &options)?;
    for (descriptor, cells, preceder) in objects {
        if !preceder.is_empty() {
            stream.write_preceder(preceder)?;
        }
        stream.write_object(&descriptor, &cells)?;
    }
    if recipe["mode"] == "backfilled" {
        stream.finish_with_backfill()?
    } else {
        stream.finish()?
    };
    Ok(())
}

fn push(path: &str, piece: usize) -> Outcome<()> {
    let bytes = std::fs::read(path)?;
    let mut decoder = PushDecoder::new(&DecodeOptions::default());
    let mut events = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        events.extend(decoder.feed(piece));
    }
    events.extend(decoder.finish());
    let mut out = std::io::stdout().lock();
    for event in events {
        let line = match event {
            Event::Object { index, cells, .. } => {
                json!({"object": index, "cells": cells.iter().map(|b| format!("{b:02x}")).collect::<String>()})
            }
            Event::Message { offset, length, .. } => json!({"message": offset, "length": length}),
            Event::Damaged { offset, error } => json!({"damaged": offset, "error": error.to_string()}),
            Event::Skipped(skipped) => json!({"skipped": skipped.offset, "length": skipped.length}),
            _ => json!({}),
        };
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["encode"] => {
            let mut recipe = String::new();
            std::io::stdin().read_to_string(&mut recipe)?;
            write(&serde_json::from_str(&recipe)?)
        }
        ["push", path, piece] => push(path, piece.parse()?),
        _ => Err("tgm_message encode | tgm_message push FILE PIECE".into()),
    }
}
