//! `tet serve`: a local page for datasets.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use tesseral_serve::{Opener, Server, ServerSettings};

use crate::args::parse_size;
use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output;
use crate::progress::Meter;

/// Arguments of `tet serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Files or folders of any supported format
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// Port [default: any free one]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Address to listen on; addresses other than loopback are reachable from the network, without encryption
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
    /// Additional host name under which browsers reach this machine. Repeatable
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Maximum number of bytes to decode for one map; larger selections are sampled
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size)]
    work: u64,
    /// Maximum number of bytes of computed maps to cache
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size)]
    keep: u64,
}

pub(crate) fn run(context: &Context, arguments: &ServeArguments) -> CliResult {
    let opener = |path: &PathBuf| {
        let (context, path) = (context.without_json(), path.clone());
        let name = path.to_string_lossy().into_owned();
        let open: Opener = Arc::new(move |at| {
            let earlier = at.map(|at| context.at(at));
            let opened = earlier.as_ref().unwrap_or(&context).open(&path, &Meter::new(false));
            opened.map_err(crate::error::CommandFailure::into_error)
        });
        (name, open)
    };
    let sources = arguments.sources.iter().map(opener).collect();
    let mut settings = ServerSettings::default();
    settings.address = arguments.address;
    settings.port = arguments.port;
    settings.names.clone_from(&arguments.host);
    settings.work = arguments.work;
    settings.cache = arguments.keep;
    let server = Server::bind(sources, settings)?;
    let url = server.url();
    if context.json() {
        output::print_json(
            &json!({"schema": "tesseral.serve/1", "url": url, "address": server.address().to_string()}),
        )?;
    } else {
        output::print(&format!("{url}\n"))?;
        crate::error::report("open the address above in a browser; press Ctrl-C to stop\n");
    }
    server.run(context.cancel())?;
    Ok(exit::OK)
}
