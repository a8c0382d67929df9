//! Matched and unmatched spans of each service.

use crate::ingest::origins::OTHER_NAME;
use std::ops::AddAssign;

/// Matched and unmatched spans of one service, in both roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounts {
    /// CLIENT spans that found their mate.
    pub client_joined: u64,
    /// CLIENT spans that found no mate in time, or were evicted.
    pub client_unmatched: u64,
    /// SERVER spans that found their mate.
    pub server_joined: u64,
    /// SERVER spans that found no mate in time, or were evicted.
    pub server_unmatched: u64,
}

impl AddAssign for ServiceCounts {
    fn add_assign(&mut self, other: ServiceCounts) {
        self.client_joined += other.client_joined;
        self.client_unmatched += other.client_unmatched;
        self.server_joined += other.server_joined;
        self.server_unmatched += other.server_unmatched;
    }
}

/// Counts by name number of the service.
#[derive(Clone, Debug, Default)]
pub struct Services(Vec<ServiceCounts>);

impl Services {
    /// Those of the service with this name number.
    #[inline]
    pub fn of(&mut self, number: u32) -> &mut ServiceCounts {
        let at = number as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, ServiceCounts::default());
        }
        &mut self.0[at]
    }

    /// Moves the counts of the service with this forgotten name number to `other`.
    pub fn forget(&mut self, number: u32) {
        let Some(counts) = self.0.get_mut(number as usize).map(std::mem::take) else { return };
        *self.of(OTHER_NAME) += counts;
    }

    /// Name numbers and counts of the services that have any.
    pub fn counted(&self) -> impl Iterator<Item = (u32, ServiceCounts)> + '_ {
        (0_u32..).zip(self.0.iter().copied()).filter(|(_, counts)| *counts != ServiceCounts::default())
    }
}

impl AddAssign<&Services> for Services {
    fn add_assign(&mut self, other: &Services) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), ServiceCounts::default());
        }
        self.0.iter_mut().zip(&other.0).for_each(|(sum, counts)| *sum += *counts);
    }
}
