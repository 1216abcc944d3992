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

/// Joins the activities of one process to their launches.
#[derive(Debug, Default)]
pub struct Correlator {
    launches: HashMap<WindowKey, LaunchOrigin>,
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
        if self.launches.insert(key, launch.origin).is_none() {
            self.order.push_back(key);
        }
        while self.launches.len() > MAX_LAUNCHES {
            let Some(oldest) = self.order.pop_front() else { return };
            counts.launches_evicted += u64::from(self.launches.remove(&oldest).is_some());
        }
    }

    fn take_activity(
        &mut self,
        activity: RawActivity,
        counts: &mut OwnCounts,
        sink: &mut dyn FnMut(CorrelatedSample),
    ) {
        match self.launches.get(&activity.window) {
            Some(origin) => {
                counts.joined += 1;
                sink(CorrelatedSample::Ran { activity, origin: Some(*origin) });
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
        let origin = self.launches.get(&activity.window).copied();
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
