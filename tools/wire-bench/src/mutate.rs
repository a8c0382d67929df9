//! Thousands of damaged captures: dissect must read each to an end, without a panic and in bounded time.

use spangap_wire::dissect::{Settings, dissect};
use spangap_wire::ladder::ladder_of;
use spangap_wire::report::{DissectReport, Extras};
use spangap_wire::source::Capture;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Result.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Files that were still captures.
    pub read: u64,
    /// Files that were no longer captures.
    pub refused: u64,
    /// Packets in them.
    pub packets: u64,
    /// Calls found.
    pub calls: u64,
    /// Maximum time for one file.
    pub longest: Duration,
}

/// Maximum size of a seed: with larger ones, the rate of files would be low.
const MAX_SEED_BYTES: usize = 60_000;

/// The sufficiently small captures of a folder, decompressed.
fn seeds(folder: &Path) -> std::io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut seeds = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.to_string_lossy().into_owned();
        let mut bytes = std::fs::read(&path)?;
        if name.ends_with(".zst") {
            let mut plain = Vec::new();
            zstd::stream::read::Decoder::new(&bytes[..])?.read_to_end(&mut plain)?;
            bytes = plain;
        } else if !name.ends_with(".pcapng") && !name.ends_with(".pcap") {
            continue;
        }
        if bytes.len() <= MAX_SEED_BYTES {
            seeds.push((path, bytes));
        }
    }
    seeds.sort();
    Ok(seeds)
}

/// Changes some bytes, removes a piece, duplicates one, or inserts one from another capture.
fn damage(bytes: &[u8], other: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..random.usize(1..12) {
        if out.is_empty() {
            break;
        }
        let at = random.usize(..out.len());
        let to = (at + random.usize(..200)).min(out.len());
        match random.u8(..8) {
            0 => drop(out.drain(at..to)),
            1 => {
                let piece = out[at..to].to_vec();
                out.splice(at..at, piece);
            }
            2 => {
                let from = random.usize(..other.len());
                let piece = other[from..(from + 100).min(other.len())].to_vec();
                out.splice(at..at, piece);
            }
            3 => out[at] = *random.choice(&[0, 1, 0x7f, 0x80, 0xff]).expect("some are given"),
            4 => out.truncate(at.max(24)),
            _ => out[at] ^= 1 << random.u8(..8),
        }
    }
    out
}

/// Dissects `files` damaged captures, every other one together with an undamaged one.
///
/// # Errors
/// Those of the folder.
pub fn mutate(folder: &Path, files: u64, seed: u64) -> std::io::Result<Outcome> {
    let seeds = seeds(folder)?;
    let mut outcome = Outcome::default();
    for n in 0..files {
        let mut random = fastrand::Rng::with_seed(seed.wrapping_add(n));
        let pick = random.usize(..seeds.len());
        let (other, mate) = (random.usize(..seeds.len()), pick ^ 1);
        let bytes = damage(&seeds[pick].1, &seeds[other].1, &mut random);
        let began = Instant::now();
        let open =
            |bytes: Vec<u8>| Capture::from_reader("damaged".into(), Box::new(std::io::Cursor::new(bytes)));
        let Ok(capture) = open(bytes) else {
            outcome.refused += 1;
            continue;
        };
        let mut captures = vec![capture];
        captures
            .extend(seeds.get(mate).filter(|_| n % 2 == 0).and_then(|(_, bytes)| open(bytes.clone()).ok()));
        let settings = Settings { slowest: 3, ..Settings::default() };
        let found = dissect(captures, &settings, &mut |_| ControlFlow::Continue(()));
        let Ok(found) = found else { panic!("captures in memory are read once") };
        // The user-visible output must be produced, too.
        let ladders: Vec<_> = found.calls.iter().map(|call| ladder_of(&found, call).ok()).collect();
        std::hint::black_box(&ladders);
        let report = DissectReport::new(&found, &settings, &Extras::default());
        std::hint::black_box(serde_json::to_vec(&report)?);
        outcome.read += 1;
        outcome.packets += found.captures.iter().map(|capture| capture.reading.packets).sum::<u64>();
        outcome.calls += found.sums.calls;
        outcome.longest = outcome.longest.max(began.elapsed());
    }
    Ok(outcome)
}
