//! Version 1: a group created below a narrowed one inherits its set, and keeps it when the parent is widened
//! again.

use super::Back;
use super::entries::PlaceHistory;
use crate::journal::{Journal, Record};
use crate::place::Place;
use spangap_machine::Host;
use spangap_model::Cpus;
use std::collections::{HashMap, HashSet};

impl Back<'_> {
    /// Gives newly created groups what their parents got back.
    pub(super) fn widen(&mut self, journal: &Journal, written: &[PlaceHistory]) {
        let narrowed: HashMap<&str, &PlaceHistory> = written
            .iter()
            .filter(|written| written.entry.old.is_some())
            .filter_map(|written| match written.entry.place.in_group()? {
                (folder, "cpuset.cpus") => Some((folder, written)),
                _ => None,
            })
            .collect();
        let unchanged: HashSet<&str> = journal
            .records
            .iter()
            .filter_map(|record| match record {
                Record::Unchanged { groups } => Some(groups),
                _ => None,
            })
            .flatten()
            .map(String::as_str)
            .collect();
        let files = self.kernel.files();
        for (folder, above) in &narrowed {
            // Version 2 has no such file: there a group without a set of its own follows its parent anyway.
            if files.read(&format!("{folder}/cpuset.cpu_exclusive")).is_err() {
                continue;
            }
            let (Some(old), Some(new)) = (&above.entry.old, Cpus::parse_list(&above.entry.new)) else {
                continue;
            };
            let back = self.kernel.get(&above.entry.place).ok().flatten();
            if !back.is_some_and(|now| above.entry.place.same(&now, old)) {
                continue;
            }
            let mut below = vec![(*folder).to_owned()];
            while let Some(folder) = below.pop() {
                for group in groups(&files, &folder) {
                    if narrowed.contains_key(group.as_str()) || unchanged.contains(group.as_str()) {
                        continue;
                    }
                    let place = Place::file(format!("{group}/cpuset.cpus"));
                    let now = self.kernel.get(&place).ok().flatten();
                    if now.as_deref().and_then(Cpus::parse_list) == Some(new.clone()) && !journal.is_whole() {
                        // Some of them must stay unchanged, and the record that says so may be lost.
                        let why = format!(
                            "it reads \"{new}\", as the group above it did, and no readable line says whether it \
                             did so before; that group has \"{old}\" again"
                        );
                        self.done.failed.push((place, why));
                    } else if now.as_deref().and_then(Cpus::parse_list) == Some(new.clone()) {
                        match self.put(&place, old) {
                            Ok(()) => self.done.widened.push(group.clone()),
                            Err(why) => self.done.failed.push((place, why)),
                        }
                    }
                    below.push(group);
                }
            }
        }
        self.done.widened.sort();
    }
}

/// Direct children of a group.
fn groups(files: &Host, folder: &str) -> Vec<String> {
    let names = files.list(folder).unwrap_or_default();
    let names = names.iter().filter(|name| !name.starts_with("cpuset.") && !name.starts_with("cgroup."));
    let paths = names.map(|name| format!("{folder}/{name}"));
    paths.filter(|path| files.read(&format!("{path}/cpuset.cpus")).is_ok()).collect()
}
