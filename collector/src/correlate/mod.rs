//! In:         `RawSample`s of one process, in ring order
//! Out:        `CorrelatedSample`s: launches with their weight, activities with the launch they belong to
//! Drops when: nothing; an activity whose launch is not found goes on as an orphan, counted
//! Runs on:    the collector's main thread

use crate::model::counts::OwnCounts;
use crate::model::sample::{
    CorrelatedSample, LaunchOrigin, RawActivity, RawLaunch, RawSample, WindowEnd, WindowKey,
};
use std::collections::{HashMap, VecDeque};

/// Launches that wait for their activities. A window of 50 ms has a few thousand; resident mode keeps this many
/// of the latest (about 20 MiB).
pub const MAX_LAUNCHES: usize = 1 << 18;
/// Activities that wait for their launch: in resident mode CUPTI may deliver before the launching thread has written.
pub const MAX_WAITING: usize = 1 << 14;

#[derive(Clone, Copy, Debug)]
struct WaitingLaunch {
    origin: LaunchOrigin,
    has_activities: bool,
}

/// Joins the activities of one process to their launches.
#[derive(Debug, Default)]
pub struct Correlator {
    launches: HashMap<WindowKey, WaitingLaunch>,
    order: VecDeque<WindowKey>,
    waiting: VecDeque<RawActivity>,
}

impl Correlator {
    /// Takes one sample and hands on what is known now.
    pub fn take(
        &mut self,
        sample: &RawSample,
        counts: &mut OwnCounts,
        sink: &mut dyn FnMut(CorrelatedSample),
    ) {
        match sample {
            RawSample::Launch(launch) => self.take_launch(launch, counts, sink),
            RawSample::Activity(activity) => self.take_activity(*activity, counts, sink),
            RawSample::WindowClosed { window_id, end } => {
                self.settle_waiting(|activity| activity.window.window_id == *window_id, counts, sink);
                if *end == WindowEnd::Whole {
                    self.forget_window(*window_id);
                }
            }
            RawSample::Status(_) => {}
        }
    }

    /// Hands on everything that still waits: nothing more comes.
    pub fn finish(&mut self, counts: &mut OwnCounts, sink: &mut dyn FnMut(CorrelatedSample)) {
        self.settle_waiting(|_| true, counts, sink);
    }

    fn take_launch(
        &mut self,
        launch: &RawLaunch,
        counts: &mut OwnCounts,
        sink: &mut dyn FnMut(CorrelatedSample),
    ) {
        if let Some(weight) = launch.weight {
            sink(CorrelatedSample::Launched { origin: launch.origin, weight });
        }
        let Some(key) = launch.window else { return };
        let waiting = WaitingLaunch { origin: launch.origin, has_activities: false };
        if self.launches.insert(key, waiting).is_none() {
            self.order.push_back(key);
        }
        while self.launches.len() > MAX_LAUNCHES {
            let Some(oldest) = self.order.pop_front() else { return };
            // One that has activities has most likely all of them: in resident mode every launch goes this way.
            let evicted = self.launches.remove(&oldest);
            counts.launches_evicted += u64::from(evicted.is_some_and(|launch| !launch.has_activities));
        }
    }

    fn take_activity(
        &mut self,
        activity: RawActivity,
        counts: &mut OwnCounts,
        sink: &mut dyn FnMut(CorrelatedSample),
    ) {
        match self.launches.get_mut(&activity.window) {
            Some(launch) => {
                launch.has_activities = true;
                counts.joined += 1;
                sink(CorrelatedSample::Ran { activity, origin: Some(launch.origin) });
            }
            None => {
                self.waiting.push_back(activity);
                if self.waiting.len() > MAX_WAITING
                    && let Some(oldest) = self.waiting.pop_front()
                {
                    self.settle(oldest, counts, sink);
                }
            }
        }
    }

    fn settle_waiting(
        &mut self,
        is_due: impl Fn(&RawActivity) -> bool,
        counts: &mut OwnCounts,
        sink: &mut dyn FnMut(CorrelatedSample),
    ) {
        for activity in std::mem::take(&mut self.waiting) {
            if is_due(&activity) {
                self.settle(activity, counts, sink);
            } else {
                self.waiting.push_back(activity);
            }
        }
    }

    fn settle(&self, activity: RawActivity, counts: &mut OwnCounts, sink: &mut dyn FnMut(CorrelatedSample)) {
        let origin = self.launches.get(&activity.window).map(|launch| launch.origin);
        match origin {
            Some(_) => counts.joined += 1,
            None => counts.orphaned += 1,
        }
        sink(CorrelatedSample::Ran { activity, origin });
    }

    /// A closed window's launches are not asked for again. Keys of one window lie together, so this walks over little
    /// more than they are; the launches of windows whose end was lost go when the map is full.
    fn forget_window(&mut self, window_id: u32) {
        let launches = &mut self.launches;
        self.order.retain(|key| {
            let stays = key.window_id != window_id;
            if !stays {
                launches.remove(key);
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared_abi::record::{ActivityKind, LaunchKind};

    fn launch(correlation_id: u32) -> RawSample {
        let origin =
            LaunchOrigin { stack_id: correlation_id, kind: LaunchKind::Kernel, hook: 0, graph_id: 0 };
        RawSample::Launch(RawLaunch {
            origin,
            weight: None,
            window: Some(WindowKey { window_id: 1, correlation_id }),
        })
    }

    fn activity(correlation_id: u32) -> RawSample {
        RawSample::Activity(RawActivity {
            window: WindowKey { window_id: 1, correlation_id },
            kind: ActivityKind::Kernel,
            duration_ns: 1,
            name_id: 0,
            graph_node: None,
            device: 0,
            detail: 0,
        })
    }

    /// A window that never ends keeps a bounded number of launches, and only those that nothing came for are a loss.
    #[test]
    fn oldest_launches_are_evicted_and_counted() {
        let (mut correlator, mut counts) = (Correlator::default(), OwnCounts::default());
        let unanswered = 10;
        for correlation_id in 0..MAX_LAUNCHES as u32 + 100 {
            correlator.take(&launch(correlation_id), &mut counts, &mut |_| {});
            if correlation_id >= unanswered {
                correlator.take(&activity(correlation_id), &mut counts, &mut |_| {});
            }
        }
        assert_eq!((correlator.launches.len(), correlator.order.len()), (MAX_LAUNCHES, MAX_LAUNCHES));
        assert_eq!(counts.launches_evicted, u64::from(unanswered));
    }

    /// Activities that no launch comes for wait in bounded number, and end as orphans.
    #[test]
    fn waiting_activities_are_bounded() {
        let (mut correlator, mut counts) = (Correlator::default(), OwnCounts::default());
        for correlation_id in 0..MAX_WAITING as u32 + 5 {
            correlator.take(&activity(correlation_id), &mut counts, &mut |_| {});
        }
        assert_eq!((correlator.waiting.len(), counts.orphaned), (MAX_WAITING, 5));
        correlator.finish(&mut counts, &mut |_| {});
        assert_eq!(counts.orphaned, MAX_WAITING as u64 + 5);
    }

    /// A closed window's launches are forgotten, a slice's are not.
    #[test]
    fn closed_window_is_forgotten() {
        let (mut correlator, mut counts) = (Correlator::default(), OwnCounts::default());
        correlator.take(&launch(1), &mut counts, &mut |_| {});
        for (end, left) in [(WindowEnd::Slice, 1), (WindowEnd::Whole, 0)] {
            correlator.take(&RawSample::WindowClosed { window_id: 1, end }, &mut counts, &mut |_| {});
            assert_eq!((correlator.launches.len(), correlator.order.len()), (left, left));
        }
    }
}
