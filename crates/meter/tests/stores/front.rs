//! ClickHouse's engine in a process of its own, behind scripts/clickhouse/front.py.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A running engine; killed when it is dropped.
pub struct Front {
    process: Child,
    /// Its address.
    pub url: String,
    folder: PathBuf,
    /// Environment of the process.
    with: Vec<(&'static str, &'static str)>,
}

/// The engine's Python package; `None`, with a line, if it is not installed.
pub fn package() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/chdb");
    if !path.join("chdb").is_dir() {
        println!("not run: ClickHouse: chdb is not installed (make test-clickhouse installs it)");
        return None;
    }
    Some(path)
}

impl Front {
    /// Starts it over the tables in `folder`; `None` if it is not installed.
    pub fn start(folder: &Path, with: &[(&'static str, &'static str)]) -> Option<Front> {
        let (process, url) = begin(folder, 0, with)?;
        Some(Front { process, url, folder: folder.into(), with: with.to_vec() })
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts it again after a kill, at the same address.
    pub fn restart(&mut self) {
        let port = self.url.rsplit(':').next().unwrap().parse().unwrap();
        (self.process, _) = begin(&self.folder, port, &self.with).unwrap();
    }

    /// Executes a statement; returns its answer as tab-separated text.
    pub fn sql(&self, statement: &str) -> String {
        let mut answer = ureq::post(&self.url).send(statement).unwrap();
        answer.body_mut().read_to_string().unwrap()
    }

    /// Takes in one of the next insertions without an answer.
    pub fn lose_answer_of(&self, insertion: u32) {
        ureq::get(format!("{}/test?lose={insertion}", self.url)).call().unwrap();
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn begin(folder: &Path, port: u16, with: &[(&'static str, &'static str)]) -> Option<(Child, String)> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/clickhouse/front.py");
    let mut process = Command::new("python3")
        .arg(script)
        .arg(folder)
        .arg(port.to_string())
        .env("PYTHONPATH", package()?)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .envs(with.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("http://"), "the front does not start");
    Some((process, line.trim().into()))
}
