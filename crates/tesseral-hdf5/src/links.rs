//! The members of a group: old groups store them in a symbol table, new ones as link messages or in a heap.

use hdf5_reader::Storage;
use hdf5_reader::btree_v1;
use hdf5_reader::btree_v2::{self, BTreeV2Header, BTreeV2Record};
use hdf5_reader::fractal_heap::{FractalHeap, FractalHeapDirectBlockCache};
use hdf5_reader::group::Group;
use hdf5_reader::io::Cursor;
use hdf5_reader::local_heap::LocalHeap;
use hdf5_reader::messages::HdfMessage;
use hdf5_reader::messages::link::{self, LinkMessage, LinkTarget};
use hdf5_reader::messages::link_info::LinkInfoMessage;
use hdf5_reader::messages::symbol_table_msg::SymbolTableMessage;
use hdf5_reader::symbol_table::SymbolTableNode;
use tesseral_core::{Error, Result};

use crate::file::File;

/// A member of a group.
#[derive(Debug)]
pub(crate) struct GroupLink {
    pub(crate) name: String,
    /// File and path of a member of another file.
    pub(crate) external: Option<String>,
    /// Address of the object header, unless the link names a path.
    pub(crate) address: Option<u64>,
    order: Option<u64>,
}

impl GroupLink {
    fn of_link(link: LinkMessage) -> Self {
        let (external, address) = match link.target {
            LinkTarget::External { filename, path } => (Some(format!("{filename}:{path}")), None),
            LinkTarget::Hard { address } => (None, Some(address)),
            LinkTarget::Soft { .. } => (None, None),
        };
        Self { name: link.name, external, address, order: link.creation_order }
    }
}

/// Lists the members of a group: in creation order if the group stores it, else by name.
pub(crate) fn members(file: &File, group: &Group) -> Result<Vec<GroupLink>> {
    let header = file.parser.get_or_parse_header(group.address()).map_err(|e| file.error(e, "a group"))?;
    let mut members = Vec::new();
    for message in &header.messages {
        match message {
            HdfMessage::SymbolTable(table) => symbol_table(file, table, &mut members)?,
            HdfMessage::Link(link) => members.push(GroupLink::of_link(link.clone())),
            HdfMessage::LinkInfo(info) if !file.is_undefined(info.fractal_heap_address) => {
                dense(file, info, &mut members)?;
            }
            _ => {}
        }
    }
    if members.iter().all(|member| member.order.is_some()) {
        members.sort_by_key(|member| member.order);
    } else {
        members.sort_by(|a, b| a.name.cmp(&b.name));
    }
    members.dedup_by(|a, b| a.name == b.name);
    Ok(members)
}

fn dense(file: &File, info: &LinkInfoMessage, members: &mut Vec<GroupLink>) -> Result<()> {
    let (storage, offset, length) = (&*file.storage, file.offset_size, file.length_size);
    let failed = |e| file.error(e, "the links of a group");
    let heap =
        FractalHeap::parse_at_storage(storage, info.fractal_heap_address, offset, length).map_err(failed)?;
    let tree = BTreeV2Header::parse_at_storage(storage, info.btree_name_index_address, offset, length)
        .map_err(failed)?;
    let records = btree_v2::collect_btree_v2_records_storage(storage, &tree, offset, length, None, &[], None)
        .map_err(failed)?;
    let mut blocks = FractalHeapDirectBlockCache::default();
    for record in records {
        let (BTreeV2Record::LinkNameHash { heap_id, .. } | BTreeV2Record::CreationOrder { heap_id, .. }) =
            record
        else {
            continue;
        };
        let bytes =
            heap.get_object_storage_cached(&heap_id, storage, offset, length, &mut blocks).map_err(failed)?;
        let link = link::parse(&mut Cursor::new(&bytes), offset, length, bytes.len()).map_err(failed)?;
        members.push(GroupLink::of_link(link));
    }
    Ok(())
}

fn symbol_table(file: &File, table: &SymbolTableMessage, members: &mut Vec<GroupLink>) -> Result<()> {
    let (storage, offset, length) = (&*file.storage, file.offset_size, file.length_size);
    let failed = |e| file.error(e, "the symbol table of a group");
    let heap = LocalHeap::parse_at_storage(storage, table.heap_address, offset, length).map_err(failed)?;
    let len = usize::try_from(heap.data_segment_size)
        .map_err(|_| Error::limit("the names of a group", heap.data_segment_size, usize::MAX as u64))?;
    let names = storage.read_range(heap.data_segment_address, len).map_err(failed)?;
    let leaves = btree_v1::collect_btree_v1_leaves_storage(
        storage,
        table.btree_address,
        offset,
        length,
        None,
        &[],
        None,
    )
    .map_err(failed)?;
    for (_, address) in leaves {
        let head = storage.read_range(address, 8).map_err(failed)?;
        let count = head.get(6..8).map_or(0, |two| usize::from(u16::from_le_bytes([two[0], two[1]])));
        let node = storage.read_range(address, 8 + count * (2 * usize::from(offset) + 24)).map_err(failed)?;
        let node = SymbolTableNode::parse(&mut Cursor::new(&node), offset, length).map_err(failed)?;
        for entry in node.entries {
            let at = usize::try_from(entry.link_name_offset).ok();
            let name =
                at.and_then(|at| names.get(at..)).and_then(|rest| rest.split(|byte| *byte == 0).next());
            let name = name.filter(|name| !name.is_empty()).and_then(|name| std::str::from_utf8(name).ok());
            let Some(name) = name else {
                let detail = "a name is outside the heap or not UTF-8";
                let object = file.storage.describe();
                return Err(Error::corrupt("the symbol table of a group", object, address, detail));
            };
            let address = Some(entry.object_header_address).filter(|address| !file.is_undefined(*address));
            members.push(GroupLink { name: name.to_owned(), external: None, address, order: None });
        }
    }
    Ok(())
}
