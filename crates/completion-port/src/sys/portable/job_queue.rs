//! Jobs that no thread has begun with, oldest first. One may be taken out by its name, however many are in front of it.

use std::collections::{HashMap, VecDeque};

use crate::backend::files::Job;

/// As long as there are no more than this, a job is looked for one by one.
const FEW: usize = 32;

/// A queue of jobs. Of those that were taken out by name the places stay, empty, until they come to the front.
#[derive(Debug, Default)]
pub(crate) struct JobQueue {
    places: VecDeque<Option<Job>>,
    /// How many jobs there are.
    len: usize,
    /// How many places have left at the front since the queue was last empty.
    left: u64,
    /// By its name, how many places were in front of a job when the queue was last empty. Made when a job is first looked
    /// for among many, and kept until the queue is empty.
    index: Option<HashMap<u64, u64>>,
}

impl JobQueue {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn push(&mut self, job: Job) {
        if let Some(index) = &mut self.index {
            index.insert(job.name, self.left + self.places.len() as u64);
        }
        self.places.push_back(Some(job));
        self.len += 1;
    }

    /// Takes the oldest job.
    pub(crate) fn pop(&mut self) -> Option<Job> {
        while let Some(place) = self.places.pop_front() {
            self.left += 1;
            if let Some(job) = place {
                if let Some(index) = &mut self.index {
                    index.remove(&job.name);
                }
                self.note_taken();
                return Some(job);
            }
        }
        None
    }

    /// Takes the job of this name.
    pub(crate) fn take(&mut self, name: u64) -> Option<Job> {
        let place = self.place_of(name)?;
        let job = self.places.get_mut(place)?.take();
        if job.is_some() {
            self.note_taken();
        }
        job
    }

    /// Takes all jobs, oldest first.
    pub(crate) fn take_all(&mut self) -> Vec<Job> {
        std::mem::take(self).places.into_iter().flatten().collect()
    }

    /// Where the job of this name is.
    fn place_of(&mut self, name: u64) -> Option<usize> {
        if self.index.is_none() && self.places.len() <= FEW {
            let is_it = |place: &Option<Job>| place.as_ref().is_some_and(|job| job.name == name);
            return self.places.iter().position(is_it);
        }
        let (places, left) = (&self.places, self.left);
        let index = self.index.get_or_insert_with(|| {
            let numbered = places.iter().zip(left..);
            numbered.filter_map(|(job, at)| Some((job.as_ref()?.name, at))).collect()
        });
        let at = index.remove(&name)?;
        usize::try_from(at - left).ok()
    }

    /// A job has left.
    fn note_taken(&mut self) {
        self.len -= 1;
        if self.len == 0 {
            self.places.clear();
            (self.left, self.index) = (0, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak};

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::backend::files::{Hold, Issuer, What};
    use crate::types::source::Descriptor;

    struct File;

    impl Hold for File {
        fn descriptor(&self) -> Descriptor {
            unreachable!("nothing is done with it")
        }

        fn has_positions(&self) -> bool {
            true
        }
    }

    struct Nobody;

    impl Issuer for Nobody {
        fn returned(&self, _: Job) {}
    }

    fn job(name: u64) -> Job {
        let issuer: Weak<Nobody> = Weak::new();
        Job {
            name,
            issuer,
            file: Arc::new(File),
            what: What::SyncAll,
            offset: 0,
            loan: None,
            done: 0,
            fault: None,
            is_called_off: false,
        }
    }

    proptest! {
        #[test]
        fn it_does_what_a_plain_list_does(steps in vec((0..8_u8, any::<prop::sample::Index>()), 1..400)) {
            let mut queue = JobQueue::default();
            let mut plain: Vec<u64> = Vec::new();
            let mut next = 0;
            for (step, which) in steps {
                match step {
                    0..5 => {
                        queue.push(job(next));
                        plain.push(next);
                        next += 1;
                    }
                    5 => {
                        let first = (!plain.is_empty()).then(|| plain.remove(0));
                        prop_assert_eq!(queue.pop().map(|job| job.name), first);
                    }
                    6 if !plain.is_empty() => {
                        let name = plain.remove(which.index(plain.len()));
                        prop_assert_eq!(queue.take(name).map(|job| job.name), Some(name));
                        prop_assert!(queue.take(name).is_none());
                    }
                    _ => prop_assert!(queue.take(next).is_none()),
                }
                prop_assert_eq!((queue.len(), queue.is_empty()), (plain.len(), plain.is_empty()));
            }
            let left: Vec<_> = queue.take_all().into_iter().map(|job| job.name).collect();
            prop_assert_eq!(left, plain);
            prop_assert!(queue.is_empty());
        }
    }

    #[test]
    fn many_jobs_are_taken_from_the_end_by_an_index() {
        let mut queue = JobQueue::default();
        (0..100).for_each(|name| queue.push(job(name)));
        assert!(queue.take(99).is_some() && queue.index.is_some());
        queue.push(job(100));
        assert!((1..99).rev().chain([100]).all(|name| queue.take(name).is_some()));
        assert_eq!((queue.len(), queue.index.as_ref().map(HashMap::len)), (1, Some(1)));
        assert!(queue.pop().is_some_and(|job| job.name == 0));
        assert!(queue.index.is_none() && queue.places.is_empty());
    }
}
