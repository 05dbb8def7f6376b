//! Keys and variables that are set and do not exist.

use std::net::IpAddr;

use super::{Key, Reader, VARIABLE_PREFIX};

/// One problem for each unknown key of the file and each unknown variable.
pub(crate) fn problems(reader: &Reader) -> Vec<String> {
    let known = &reader.known;
    let is_key = |name: &str| known.iter().any(|key| key.name == name);
    let is_section = |name: &str| known.iter().any(|key| key.parts().0 == name);
    // For an unknown table, or one that is no section, only the table is reported.
    let is_in_file = |name: &str| {
        let name = name.split('[').next().unwrap_or_default();
        reader.file.contains_key(name)
    };
    let mut problems = Vec::new();
    for (name, found) in &reader.file {
        let parent = name.rsplit_once('.').map_or("", |(parent, _)| parent);
        if is_key(name) || (is_section(name) && found.value.is_table()) {
            continue;
        }
        let origin = &found.origin;
        if is_section(name) {
            problems.push(format!("{name} ({origin}) is a section, it has no value itself"));
        } else if is_section(parent) || !is_in_file(parent) {
            problems.push(format!("unknown key {name} ({origin}); {}", siblings(parent, known)));
        }
    }
    for (name, value) in &reader.variables {
        if known.iter().all(|key| key.variable() != *name) && !is_of_kubernetes(name, value) {
            let is_prefix = |section: &&str| {
                let prefix = format!("{VARIABLE_PREFIX}{}_", section.to_ascii_uppercase());
                !section.is_empty() && name.starts_with(&prefix)
            };
            let section = known.iter().map(|key| key.parts().0).find(is_prefix);
            let siblings = siblings(section.unwrap_or_default(), known);
            problems.push(format!("unknown variable {name}; {siblings}"));
        }
    }
    problems
}

/// The keys of the section, or else the sections.
fn siblings(section: &str, known: &[Key]) -> String {
    let of_section: Vec<_> = known
        .iter()
        .map(Key::parts)
        .filter(|(of, _)| !of.is_empty() && *of == section)
        .map(|(_, name)| name)
        .collect();
    if !of_section.is_empty() {
        return format!("{section} has {}", of_section.join(", "));
    }
    let mut first: Vec<_> = known.iter().filter_map(|key| key.name.split('.').next()).collect();
    first.dedup();
    format!("there are {}", first.join(", "))
}

/// Whether Kubernetes set this variable for a Service named `keepsake` or `keepsake-…`.
///
/// Kubernetes gives each container variables that begin with the name of every
/// Service of its namespace. Refusing them would keep a server from starting
/// beside its own Service or that of its database. Two of them hold a URL such as
/// `tcp://10.0.0.1:8080`: a `KEEPSAKE_PORT` with a bare number was set by a person
/// and is refused.
fn is_of_kubernetes(name: &str, value: &str) -> bool {
    let is_url = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    let is_port = |number: &str| number.parse::<u16>().is_ok();
    let rest = name.strip_prefix(VARIABLE_PREFIX).unwrap_or_default();
    let parts: Vec<_> = rest.split('_').collect();
    // The parts before `start` are the rest of the Service's name.
    (0..parts.len()).any(|start| match &parts[start..] {
        ["SERVICE", "HOST"] => value.parse::<IpAddr>().is_ok(),
        ["SERVICE", "PORT", port_name @ ..] => port_name != [""] && is_port(value),
        ["PORT"] => is_url,
        ["PORT", number, "TCP" | "UDP" | "SCTP"] => is_port(number) && is_url,
        ["PORT", number, "TCP" | "UDP" | "SCTP", "PROTO" | "PORT" | "ADDR"] => is_port(number),
        _ => false,
    })
}
