//! What the page of sampled stacks shows: the summary in words, and the stacks that its flame graph draws. The page itself is built
//! from `web/src/report/`; a document of this shape stands in it.

use super::StacksReport;
use super::picture::folded;
use super::text::{HEAD, cost, groups_shown, rate, rows, shares, title};
use serde::Serialize;
use spangap_report::page::TablePage;

/// The page.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StacksPage {
    /// Title of the document.
    pub title: String,
    /// How often it was sampled, and how many samples came.
    pub facts: String,
    /// Where all samples went.
    pub shares: String,
    /// The same by CPU.
    pub per_cpu: TablePage,
    /// Who had the time that was not the application's, and by which ways.
    pub groups: Vec<GroupPage>,
    /// The groups that are not shown, summed up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_groups: Option<String>,
    /// Stacks with what stands at their bottoms, `root;...;leaf count`.
    pub folded: Vec<String>,
    /// All samples, of which the stacks are a part.
    pub samples: u64,
    /// What keeps these figures from being all of the truth.
    pub notes: Vec<String>,
    /// What the sampling took itself.
    pub cost: String,
}

/// Who had CPUs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupPage {
    /// Of all samples.
    pub share: String,
    /// Who, on which CPUs, on top of whom.
    pub words: String,
    /// By which ways through the kernel, most frequent first.
    pub ways: Vec<WayPage>,
}

/// A way through the kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WayPage {
    /// Of all samples.
    pub share: String,
    /// Functions, from where the CPU was to the root.
    pub words: String,
}

impl StacksPage {
    /// What is shown of a report.
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
