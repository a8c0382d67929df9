//! Slices of an agent's rings: requested, and their pieces stored in a case's folder within bounds.

use crate::agents::{Agents, Answer, Asked, NoAsk};
use crate::folder::{Folder, Part};
use crate::now_unix_ms;
use spangap_fleet::slice::{self, Gathering, SliceError};
use spangap_fleet::v1::{Ask, SliceEnd};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Maximum decompressed bytes per requested byte. Packets with masked payload shrink by this factor.
const EXPANSION: u64 = 8;

/// Why a slice is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum NoSlice {
    /// The agent cannot be asked.
    #[error(transparent)]
    NoAsk(#[from] NoAsk),
    /// It violates a rule.
    #[error(transparent)]
    Slice(#[from] SliceError),
    /// It exceeds the requested size.
    #[error("it sent more than the {0} bytes asked for")]
    TooLong(u64),
    /// It is late.
    #[error("it was not complete within {0:?}")]
    TooLate(Duration),
    /// The agent disconnected before its end.
    #[error("the agent disconnected before it was complete")]
    HungUp,
    /// The agent reported an error.
    #[error("the agent: {0}")]
    Agent(String),
    /// It cannot be written.
    #[error("it cannot be written: {0}")]
    Write(#[from] io::Error),
}

/// A received slice.
#[derive(Debug)]
pub struct Slice {
    /// The agent's final message.
    pub end: SliceEnd,
    /// Bytes written.
    pub bytes: u64,
}

/// File name of a slice in the folder of a case, as in a run of the lab.
pub(crate) fn name(file: &str, of: &str) -> String {
    match file {
        slice::CAPTURE => format!("{of}.pcapng"),
        slice::CAPTURE_AT_SERVER => "server.pcapng".into(),
        slice::RECORDING => format!("{of}.host"),
        other => format!("{of}.{other}"),
    }
}

/// Requests a slice from an agent, and writes it as files of `of` (`client`, `server`).
///
/// # Errors
/// When the slice is incomplete. Files complete by then remain.
pub async fn fetch(
    agents: &Arc<Agents>,
    folder: &Arc<Folder>,
    case: &str,
    of: &str,
    agent: &str,
    ask: Ask,
    time: Duration,
) -> Result<Slice, NoSlice> {
    let limit = ask.max_bytes;
    let mut asked = agents.ask(agent, ask, now_unix_ms())?;
    let mut writing = Writing {
        folder: folder.clone(),
        case: case.to_owned(),
        of: of.to_owned(),
        gathering: Gathering::new(limit.saturating_mul(EXPANSION)),
        part: None,
        sent: 0,
        limit,
    };
    let done = take_all(&mut asked, &mut writing, time).await;
    if done.is_err() {
        if let Some((_, part)) = writing.part.take() {
            part.discard();
        }
        agents.count(|refused| refused.slices += 1);
    }
    done
}

async fn take_all(asked: &mut Asked, writing: &mut Writing, time: Duration) -> Result<Slice, NoSlice> {
    let until = Instant::now() + time;
    loop {
        let answer = timeout_at(until, asked.answers.recv()).await.map_err(|_| NoSlice::TooLate(time))?;
        match answer.ok_or(NoSlice::HungUp)? {
            // Some hundred kilobytes to the page cache, which is cheap compared with their transfer.
            Answer::Piece(piece) => tokio::task::block_in_place(|| writing.take(&piece))?,
            Answer::End(end) if !end.error.is_empty() => {
                return Err(NoSlice::Agent(end.error.chars().take(500).collect()));
            }
            Answer::End(end) => {
                tokio::task::block_in_place(|| writing.finish())?;
                let bytes = writing.gathering.files().iter().map(|(_, bytes)| bytes).sum();
                return Ok(Slice { end, bytes });
            }
        }
    }
}

struct Writing {
    folder: Arc<Folder>,
    case: String,
    of: String,
    gathering: Gathering,
    part: Option<(&'static str, Part)>,
    sent: u64,
    limit: u64,
}

impl Writing {
    fn take(&mut self, piece: &spangap_fleet::v1::SlicePiece) -> Result<(), NoSlice> {
        self.sent += piece.zstd.len() as u64;
        if self.sent > self.limit {
            return Err(NoSlice::TooLong(self.limit));
        }
        let (file, bytes) = self.gathering.take(piece)?;
        if self.part.as_ref().is_none_or(|(name, _)| *name != file) {
            self.finish()?;
            self.part = Some((file, self.folder.create(&self.case, &name(file, &self.of))?));
        }
        if let Some((_, part)) = &mut self.part {
            part.write_all(&bytes)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.part.take().map_or(Ok(()), |(_, part)| part.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_captures_of_one_hosts_two_ends_are_those_of_client_and_server() {
        assert_eq!(name(slice::CAPTURE, "client"), "client.pcapng");
        assert_eq!(name(slice::CAPTURE_AT_SERVER, "client"), "server.pcapng");
        assert_eq!(name(slice::RECORDING, "client"), "client.host");
    }
}
