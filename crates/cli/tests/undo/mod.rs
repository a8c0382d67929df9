//! One body for every kind of change that can be undone: killed at many points of it, with whoever would undo it instead, it
//! is undone from its journal alone.

use crate::process::{Ended, Program, until};
use std::fmt::Debug;

/// A change that a program makes, seen from outside.
pub trait Change {
    /// A moment of it.
    type Point: Debug;

    /// All that it may change, as text; without its journals.
    fn state(&mut self) -> Vec<String>;
    /// Starts it, and kills it at this moment by SIGKILL; who would undo it then is killed, too.
    fn killed_at(&mut self, point: &Self::Point);
    /// Journals that are open.
    fn open_journals(&self) -> usize;
    /// Starts to undo what was killed.
    fn undo(&self) -> Program;
    /// Of how many journals it says that it undid what is in them.
    fn undone(&self, said: &Ended) -> usize;
}

/// Whatever the point: all is as before once somebody has undone it, also when two do at once, and undoing it again changes
/// nothing. Of how many points it was half done.
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
