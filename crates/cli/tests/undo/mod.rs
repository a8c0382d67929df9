//! One suite for every kind of reversible change: killed at many points, together with the process that would
//! undo it, each is undone from its journal alone.

use crate::process::{Ended, Program, until};
use std::fmt::Debug;

/// A change that a program makes, seen from outside.
pub trait Change {
    /// A moment within it.
    type Point: Debug;

    /// Everything that it may change, as text, without its journals.
    fn state(&mut self) -> Vec<String>;
    /// Starts it, and kills it with SIGKILL at this moment, together with the process that would undo it.
    fn killed_at(&mut self, point: &Self::Point);
    /// Number of open journals.
    fn open_journals(&self) -> usize;
    /// Starts undoing what the killed program changed.
    fn undo(&self) -> Program;
    /// Number of journals that it reports as undone.
    fn undone(&self, said: &Ended) -> usize;
}

/// Whatever the point, everything is as before once somebody has undone it, even if two do so concurrently,
/// and undoing it again changes nothing. Returns at how many points it was half done.
pub fn undone_wherever_it_is_killed<C: Change>(
    new: impl Fn() -> Option<C>,
    points: impl IntoIterator<Item = C::Point>,
) -> Option<usize> {
    let mut halves = 0;
    for point in points {
        let mut change = new()?;
        let before = change.state();
        change.killed_at(&point);
        let journals = change.open_journals();
        assert!(journals <= 1, "{point:?}: {journals} journals");
        let half = change.state() != before;
        assert!(journals == 1 || !half, "{point:?}: there is no way back: {:?}", change.state());
        halves += usize::from(half);
        // A program that the killed one was just starting holds the journal a moment longer.
        let mut undone = 0;
        until("undone", || {
            for ended in [change.undo(), change.undo()].map(Program::wait) {
                assert_eq!(ended.code, Some(0), "{point:?}: {ended:?}");
                undone += change.undone(&ended);
            }
            (change.open_journals() == 0).then_some(())
        });
        assert_eq!((change.state(), undone), (before.clone(), journals), "{point:?}");
        let again = change.undo().wait();
        assert_eq!((again.code, change.open_journals()), (Some(0), 0), "{point:?}: {again:?}");
        assert_eq!(change.undone(&again), 0, "{point:?}: {again:?}");
        assert_eq!(change.state(), before, "{point:?}: undone twice");
        println!(
            "killed when {point:?}: {}",
            if half { "half of it was undone" } else { "nothing was changed" }
        );
    }
    assert!(halves > 0, "it was never killed in the middle");
    Some(halves)
}
