//! The workload tool, if its sources and Go are available: an independent generator with an exact truth.

use crate::BenchError;
use crate::truth::Truth;
use crate::workload::Workload;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The built tool.
pub struct Gapload {
    binary: PathBuf,
    folder: PathBuf,
}

impl Gapload {
    /// Builds the tool from `sources` into `folder`.
    ///
    /// # Errors
    /// In words, why it cannot be used here.
    pub fn build(sources: &Path, folder: &Path) -> Result<Gapload, String> {
        if !sources.join("go.mod").is_file() {
            return Err(format!("no workload tool at {}", sources.display()));
        }
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let absolute =
            |path: &Path| std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()));
        let (folder, sources) = (absolute(folder)?, absolute(sources)?);
        let binary = folder.join("gapload");
        let build =
            Command::new("go").args(["build", "-o"]).arg(&binary).arg(".").current_dir(&sources).output();
        match build {
            Err(error) => Err(format!("no go to build the workload tool with: {error}")),
            Ok(output) if !output.status.success() => Err(format!(
                "go build of the workload tool: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            )),
            Ok(_) => Ok(Gapload { binary, folder }),
        }
    }

    /// Reads a workload with these further arguments, generating it if the folder does not contain it.
    ///
    /// # Errors
    /// The tool fails, or its files cannot be read.
    pub fn generate(&self, name: &str, arguments: &[&str]) -> Result<(Workload, Truth), BenchError> {
        let file = self.folder.join(format!("{name}.gapl"));
        let truth = self.folder.join(format!("{name}.gapl.truth.json"));
        // The truth is written last.
        if !truth.is_file() {
            let program = || format!("{} gen", self.binary.display());
            let failed = |reason: String| BenchError::Program { program: program(), reason };
            let mut command = Command::new(&self.binary);
            let output = command.arg("gen").arg("-out").arg(&file).args(arguments).output();
            let output = output.map_err(|error| failed(error.to_string()))?;
            if !output.status.success() {
                return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_string()));
            }
        }
        let workload = Workload::read(&file)?;
        let mut truth = Truth::read(&truth)?;
        qualify(&mut truth, &namespaces(&workload));
        Ok((workload, truth))
    }
}

/// The namespace of every service that has one, from a decoder independent of the meter's.
fn namespaces(workload: &Workload) -> HashMap<String, String> {
    let mut namespaces = HashMap::new();
    for batch in &workload.batches {
        // Rejecting an invalid batch is the meter's task.
        let Ok(request) = ExportTraceServiceRequest::decode(&batch.bytes[..]) else { continue };
        for resource in request.resource_spans.iter().filter_map(|spans| spans.resource.as_ref()) {
            let text = |key: &str| {
                let attribute = resource.attributes.iter().find(|attribute| attribute.key == key)?;
                match attribute.value.as_ref()?.value.as_ref()? {
                    Value::StringValue(text) => Some(text.clone()),
                    _ => None,
                }
            };
            if let Some(service) = text("service.name")
                && let Some(namespace) = text("service.namespace")
            {
                namespaces.insert(service, namespace);
            }
        }
    }
    namespaces
}

/// The tool's truth has bare service names; the meter uses `namespace/name`, as a name is unique within its
/// namespace only.
fn qualify(truth: &mut Truth, namespaces: &HashMap<String, String>) {
    for name in truth.pairs.iter_mut().flat_map(|pair| [&mut pair.client, &mut pair.server]) {
        if let Some(namespace) = namespaces.get(name) {
            *name = format!("{namespace}/{name}");
        }
    }
}
