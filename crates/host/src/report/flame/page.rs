//! Content of the page of sampled stacks: the summary in words, and the stacks that its flame graph draws. The
//! page itself is built from `web/src/report/`, and embeds a document of this shape.

use super::StacksReport;
use super::groups::{GroupPage, groups_shown};
use super::picture::folded;
use super::text::{HEAD, cost, rate, rows, shares, title};
use serde::Serialize;
use spangap_report::page::TablePage;

/// What the page shows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StacksPage {
    /// Title of the document.
    pub title: String,
    /// Sampling rate and number of samples.
    pub facts: String,
    /// Classification of all samples.
    pub shares: String,
    /// The same by CPU.
    pub per_cpu: TablePage,
    /// Who used the time outside the application, and through which kernel paths.
    pub groups: Vec<GroupPage>,
    /// Summary of the groups that are not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_groups: Option<String>,
    /// Folded stacks with their root frames, `root;...;leaf count`.
    pub folded: Vec<String>,
    /// Number of all samples, of which the stacks are a part.
    pub samples: u64,
    /// Limitations of the figures.
    pub notes: Vec<String>,
    /// Cost of the sampling.
    pub cost: String,
}

impl StacksPage {
    /// Selects what to show of a report.
    pub fn new(report: &StacksReport) -> StacksPage {
        let (groups, more_groups) = groups_shown(report);
        StacksPage {
            title: title(report),
            facts: rate(report),
            shares: shares(&report.samples),
            per_cpu: TablePage {
                title: "The samples of each CPU".into(),
                head: HEAD.to_vec(),
                figures: (1..HEAD.len()).collect(),
                rows: rows(report).map(Vec::from).collect(),
                more: None,
            },
            groups,
            more_groups,
            folded: folded(report),
            samples: report.samples.received,
            notes: report.notes.clone(),
            cost: cost(report),
        }
    }
}
