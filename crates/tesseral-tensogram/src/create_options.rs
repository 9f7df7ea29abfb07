//! Options of writing `.tgm` files.

use tesseral_format::{CreateOption, OptionTable, OptionType};

use crate::api::options::{Provenance, Stamp};
use crate::compress::MASK_METHODS;
use crate::encode::MaskOptions;
use crate::wire::descriptor::MaskKind;

/// Format-specific options of creation.
#[derive(Clone, Debug, PartialEq)]
pub struct TensogramCreateOptions {
    /// How non-finite cells are stored.
    pub masks: MaskOptions,
    /// Provenance metadata. By default without time and UUID, so that equal input produces equal bytes.
    pub provenance: Provenance,
}

impl Default for TensogramCreateOptions {
    fn default() -> Self {
        Self { masks: MaskOptions::any(), provenance: Provenance::reproducible() }
    }
}

type Declared = CreateOption<TensogramCreateOptions>;

const fn provenance(
    name: &'static str,
    set: fn(&mut TensogramCreateOptions, &str) -> tesseral_core::Result<()>,
    default: &'static str,
    description: &'static str,
) -> Declared {
    CreateOption { name, kind: OptionType::Text(set), default, description }
}

const fn mask(
    name: &'static str,
    set: fn(&mut TensogramCreateOptions, &str),
    description: &'static str,
) -> Declared {
    CreateOption { name, kind: OptionType::Choice(&MASK_METHODS, set), default: "roaring", description }
}

fn set_mask(options: &mut TensogramCreateOptions, kind: MaskKind, method: &str) {
    method.clone_into(&mut options.masks.methods[kind as usize]);
}

/// Names of the options. The method of all masks precedes those of one kind, which override it.
pub(crate) static OPTIONS: OptionTable<TensogramCreateOptions> = OptionTable(&[
    provenance(
        "time",
        |options, text| {
            options.provenance.time = Stamp::Pinned(text.to_owned());
            Ok(())
        },
        "none",
        "Creation time, as 2026-01-02T03:04:05Z.",
    ),
    provenance(
        "uuid",
        |options, text| {
            options.provenance.uuid = Stamp::Pinned(text.to_owned());
            Ok(())
        },
        "none",
        "UUID of the message.",
    ),
    provenance(
        "encoder_name",
        |options, text| {
            text.clone_into(&mut options.provenance.encoder.0);
            Ok(())
        },
        "tesseral",
        "Name of the encoding library.",
    ),
    provenance(
        "encoder_version",
        |options, text| {
            text.clone_into(&mut options.provenance.encoder.1);
            Ok(())
        },
        "the version of this library",
        "Version of the encoding library.",
    ),
    mask(
        "mask_method",
        |options, method| MaskKind::ALL.into_iter().for_each(|kind| set_mask(options, kind, method)),
        "Compression of the masks of non-finite cells.",
    ),
    mask(
        "nan_mask_method",
        |options, method| set_mask(options, MaskKind::Nan, method),
        "Compression of the masks of NaN cells.",
    ),
    mask(
        "pos_inf_mask_method",
        |options, method| set_mask(options, MaskKind::PosInf, method),
        "Compression of the masks of positive infinite cells.",
    ),
    mask(
        "neg_inf_mask_method",
        |options, method| set_mask(options, MaskKind::NegInf, method),
        "Compression of the masks of negative infinite cells.",
    ),
]);
