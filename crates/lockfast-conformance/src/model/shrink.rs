//! Makes a story that shows a difference as short as it can be.

use std::time::Duration;

use lockfast_core::Moment;

use super::Step;
use super::play::{Ending, Stage, play};

/// For how long shorter stories are tried.
const TIME_MAX: Duration = Duration::from_secs(40);
/// How long a store may take to do what the rule says, while it is known not to.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How often a story is played that may show the difference only at times.
const PLAYS: usize = 2;

/// The shortest story that was found.
pub(super) struct Short {
    pub(super) steps: Vec<Step>,
    pub(super) how: String,
    pub(super) tries: usize,
}

impl Short {
    pub(super) fn whole(story: &[Step], how: String) -> Self {
        Self { steps: story.to_vec(), how, tries: 0 }
    }
}

/// Leaves out steps, then single requests, as long as there is still a difference.
pub(super) async fn shorten(
    story: &[Step],
    how: String,
    stage: impl Fn(Duration) -> Stage,
) -> Short {
    let start = Moment::now();
    let mut short = Short::whole(story, how);
    let mut size = story.len().div_ceil(2);
    while size > 0 {
        let mut is_shorter = false;
        for steps in shorter(&short.steps, size) {
            if Moment::now().since(start) > TIME_MAX {
                return short;
            }
            short.tries += 1;
            if let Some((step, how)) = differs(&steps, &stage).await {
                short.steps = steps[..=step].to_vec();
                short.how = how;
                is_shorter = true;
                break;
            }
        }
        if !is_shorter {
            size /= 2;
        }
    }
    short
}

async fn differs(steps: &[Step], stage: &impl Fn(Duration) -> Stage) -> Option<(usize, String)> {
    for _ in 0..PLAYS {
        if let Ending::Differed { step, how } = play(stage(PATIENCE), steps).await {
            return Some((step, how));
        }
    }
    None
}

/// The story without so many steps in a row, wherever they are; without single requests, too, when
/// it is about single steps.
fn shorter(steps: &[Step], size: usize) -> Vec<Vec<Step>> {
    let mut all = Vec::new();
    for at in (0..steps.len()).step_by(size) {
        let end = (at + size).min(steps.len());
        all.push([&steps[..at], &steps[end..]].concat());
    }
    if size == 1 {
        for (at, step) in steps.iter().enumerate().filter(|(_, step)| step.0.len() > 1) {
            for request in 0..step.0.len() {
                let mut less = steps.to_vec();
                less[at].0.remove(request);
                all.push(less);
            }
        }
    }
    all.retain(|steps| !steps.is_empty());
    all
}

#[cfg(test)]
mod tests {
    use super::super::step::{Request, What};
    use super::*;

    fn look(lock: usize) -> Request {
        Request { lock, who: 0, via: 0, what: What::Look }
    }

    #[test]
    fn a_story_loses_steps_and_requests() {
        let story = [Step(vec![look(0)]), Step(vec![look(1), look(2)]), Step(vec![look(3)])];
        let halves: Vec<usize> = shorter(&story, 2).iter().map(Vec::len).collect();
        assert_eq!(halves, [1, 2]);
        let single = shorter(&story, 1);
        assert_eq!(single.len(), 5);
        assert_eq!(single[3][1], Step(vec![look(2)]));
        assert!(shorter(&story[..1], 1).is_empty());
    }
}
