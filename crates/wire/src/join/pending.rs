//! Halves that wait for their mates: looked up by the sequence number of the request's first byte, expired in
//! order of arrival.

use crate::exchange::Exchange;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Marker for "no slot".
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Slot {
    /// Number of times the slot was used, to recognise outdated entries of the queue.
    generation: u32,
    /// Next slot with the same sequence number.
    next: u32,
    link: usize,
    half: Option<Exchange>,
}

/// The waiting halves of one capture.
#[derive(Debug, Default)]
pub(super) struct Pending {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_number: FxHashMap<u32, u32>,
    /// `(slot, generation)` in order of arrival; entries of emptied slots are skipped.
    order: VecDeque<(u32, u32)>,
    /// Older ones that must wait however long it takes.
    aside: VecDeque<(u32, u32)>,
}

impl Pending {
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn insert(&mut self, link: usize, half: &Exchange) {
        let number = half.request.start as u32;
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, next: NONE, link, half: None });
            (self.slots.len() - 1) as u32
        });
        let before = self.by_number.insert(number, place).unwrap_or(NONE);
        let slot = &mut self.slots[place as usize];
        (slot.next, slot.link, slot.half) = (before, link, Some(half.clone()));
        self.order.push_back((place, slot.generation));
        self.forget_taken();
    }

    /// Halves that wait under a sequence number: slot, link, half; the latest first.
    pub fn candidates(&self, number: u32) -> impl Iterator<Item = (usize, usize, &Exchange)> {
        let mut at = self.by_number.get(&number).copied().unwrap_or(NONE);
        std::iter::from_fn(move || {
            let slot = self.slots.get(at as usize)?;
            let place = at as usize;
            at = slot.next;
            slot.half.as_ref().map(|half| (place, slot.link, half))
        })
    }

    /// Removes a half that [`Pending::candidates`] returned.
    pub fn take(&mut self, place: usize) -> (usize, Exchange) {
        let slot = &mut self.slots[place];
        let half = slot.half.take().unwrap_or_default();
        let (link, next) = (slot.link, slot.next);
        slot.generation = slot.generation.wrapping_add(1);
        let number = half.request.start as u32;
        let first = self.by_number.get(&number).copied().unwrap_or(NONE);
        if first as usize == place {
            if next == NONE {
                self.by_number.remove(&number);
            } else {
                self.by_number.insert(number, next);
            }
        } else {
            let mut at = first;
            while let Some(slot) = self.slots.get_mut(at as usize) {
                if slot.next as usize == place {
                    slot.next = next;
                    break;
                }
                at = slot.next;
            }
        }
        self.free.push(place as u32);
        (link, half)
    }

    /// Removes the half that has waited longest.
    pub fn take_oldest(&mut self) -> Option<(usize, Exchange)> {
        self.forget_taken();
        let (place, _) = self.aside.pop_front().or_else(|| self.order.pop_front())?;
        Some(self.take(place as usize))
    }

    /// The half that has waited longest among those not set aside: slot, link, half.
    pub fn front(&mut self) -> Option<(usize, usize, &Exchange)> {
        self.forget_taken();
        let (place, _) = *self.order.front()?;
        let slot = self.slots.get(place as usize)?;
        slot.half.as_ref().map(|half| (place as usize, slot.link, half))
    }

    /// Sets the half returned by [`Pending::front`] aside.
    pub fn set_aside(&mut self) {
        self.aside.extend(self.order.pop_front());
    }

    fn forget_taken(&mut self) {
        let slots = &self.slots;
        let taken = |(place, generation): (u32, u32)| slots[place as usize].generation != generation;
        while self.order.front().is_some_and(|entry| taken(*entry)) {
            self.order.pop_front();
        }
        while self.aside.front().is_some_and(|entry| taken(*entry)) {
            self.aside.pop_front();
        }
        if self.aside.len() > 2 * (slots.len() - self.free.len()) + 1024 {
            self.aside.retain(|entry| !taken(*entry));
        }
        // A half that waits long blocks the queue's front, but must not grow its memory.
        if self.order.len() > 2 * (slots.len() - self.free.len()) + 1024 {
            self.order.retain(|entry| !taken(*entry));
        }
    }
}
