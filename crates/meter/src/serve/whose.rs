//! Whose minutes a question is about: this meter's, or those of all meters that share theirs.

use super::api::{Answer, Api, Problem, Wanted};
use crate::clickhouse::AllMinutes;
use crate::history::{Cancel, HistoryError, Minutes, Stored};
use crate::report::OfMeters;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use spangap_model::PairKey;
use std::sync::Arc;

/// A set of meters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Meters {
    This,
    All,
}

/// Parameter of questions about minutes. Without it they are about all meters, if this one shares its minutes.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Whose {
    meters: Option<Meters>,
}

/// Where the minutes come from.
pub(super) struct Source<'a> {
    api: &'a Api,
    /// Ends the question when nobody waits for the answer any more.
    pub(super) cancel: &'a Arc<Cancel>,
    all: Option<AllMinutes>,
    /// For the answer; `None` where there is but one meter.
    pub(super) of_meters: Option<OfMeters>,
}

impl Api {
    /// Decides it, once for each question.
    fn source<'a>(
        &'a self,
        whose: Whose,
        cancel: &'a Arc<Cancel>,
    ) -> Result<Result<Source<'a>, Problem>, HistoryError> {
        let this = |of_meters| Source { api: self, cancel, all: None, of_meters };
        let Some(clickhouse) = &self.clickhouse else {
            let why = "meters=all asks for the minutes of several meters, which --clickhouse brings together";
            return Ok(match whose.meters {
                Some(Meters::All) => Err(Problem(StatusCode::BAD_REQUEST, why.into())),
                _ => Ok(this(None)),
            });
        };
        let alone = |note: String| Some(OfMeters { meters: Vec::new(), note });
        if whose.meters == Some(Meters::This) {
            return Ok(Ok(this(alone("minutes of this meter alone, with the current one".into()))));
        }
        match clickhouse.minutes(cancel) {
            Ok(all) => {
                let of_meters = Some(all.of_meters());
                Ok(Ok(Source { api: self, cancel, all: Some(all), of_meters }))
            }
            // Who did not ask for all meters gets what there is, and is told.
            Err(HistoryError::Shared(problem)) if whose.meters.is_none() => Ok(Ok(this(alone(format!(
                "minutes of this meter alone, because ClickHouse does not answer: {problem}"
            ))))),
            Err(error) => Err(error),
        }
    }
}

impl Api {
    /// Answers a question to the minutes of these meters.
    pub(super) async fn ask_source<T: Serialize + 'static>(
        &self,
        wanted: Wanted,
        whose: Whose,
        work: impl FnOnce(&Api, Source<'_>) -> Result<Result<T, Problem>, HistoryError> + Send + 'static,
    ) -> Answer {
        self.query(wanted, move |api, cancel| match api.source(whose, cancel)? {
            Ok(source) => work(api, source),
            Err(problem) => Ok(Err(problem)),
        })
        .await
    }
}

impl Source<'_> {
    /// The minutes as of now. Open minutes are restricted to the matching pairs.
    pub(super) fn minutes(
        &self,
        matches: impl Fn(&PairKey) -> bool,
    ) -> Result<Box<dyn Minutes>, HistoryError> {
        if let Some(all) = &self.all {
            return Ok(Box::new(all.clone()));
        }
        let (view, memory) = self.api.store.view(self.cancel, matches)?;
        Ok(Box::new(Stored { view, memory }))
    }

    /// The same for questions about gaps alone.
    pub(super) fn gaps(&self, matches: impl Fn(&PairKey) -> bool) -> Result<Box<dyn Minutes>, HistoryError> {
        if let Some(all) = &self.all {
            return Ok(Box::new(all.clone()));
        }
        let (view, memory) = self.api.store.view_of_gaps(self.cancel, matches)?;
        Ok(Box::new(Stored { view, memory }))
    }
}
