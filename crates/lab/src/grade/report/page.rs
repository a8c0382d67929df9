//! Parts of the grading's page besides the report: its title, and links to folders. The page is built from
//! `web/src/report/`.

use super::GradeReport;
use std::path::Path;

/// `2 of 4 verdicts are right`
pub fn title(report: &GradeReport) -> String {
    let right = &report.score.right;
    match right.share {
        Some(_) => format!("{} of {} verdicts are right", right.count, right.of),
        None => "No run was judged".into(),
    }
}

/// Links to the kept folders, by row; relative for folders below `beside`, the folder that the page is written
/// to.
pub fn links(report: &GradeReport, beside: &Path) -> Vec<Option<String>> {
    report.rows.iter().map(|row| row.folder.as_ref().map(|folder| address(folder, beside))).collect()
}

/// A folder as a link: relative if it lies below the page.
fn address(folder: &Path, beside: &Path) -> String {
    let (text, prefix) = match folder.strip_prefix(beside) {
        Ok(below) => (below, "./"),
        Err(_) => (folder, "file://"),
    };
    let mut address = String::from(prefix);
    for byte in text.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                address.push(char::from(*byte));
            }
            byte => address += &format!("%{byte:02X}"),
        }
    }
    address + "/"
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn kept_folders_are_linked_relative_to_the_page() {
        let report = samples::report();
        assert_eq!(title(&report), "2 of 4 verdicts are right");
        let links = |beside: &str| links(&report, Path::new(beside));
        assert_eq!(links("/kept")[2].as_deref(), Some("./rto%20%26%20co/"));
        assert_eq!(links("/pages")[2].as_deref(), Some("file:///kept/rto%20%26%20co/"));
        assert_eq!((links("/kept").len(), &links("/kept")[4]), (report.rows.len(), &None));
    }
}
