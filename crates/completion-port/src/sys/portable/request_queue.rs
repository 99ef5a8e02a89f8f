//! Requests that no thread has started, oldest first. Any of them can be removed by its id.

use std::collections::{HashMap, VecDeque};

use crate::backend::request::FileRequest;

/// The number of places up to which a request is searched for linearly.
const FEW: usize = 32;

/// A queue of requests. The place of a request that was removed by id stays, empty, until it
/// reaches the front.
#[derive(Debug, Default)]
pub(crate) struct RequestQueue {
    places: VecDeque<Option<FileRequest>>,
    /// The number of requests.
    len: usize,
    /// How many places have left the front since the queue was last empty.
    left: u64,
    /// Maps the id of each request to its position since the queue was last empty. Built for the
    /// first search among many places, and kept until the queue is empty.
    index: Option<HashMap<u64, u64>>,
}

impl RequestQueue {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn push(&mut self, request: FileRequest) {
        if let Some(index) = &mut self.index {
            index.insert(request.id, self.left + self.places.len() as u64);
        }
        self.places.push_back(Some(request));
        self.len += 1;
    }

    /// Takes the oldest request.
    pub(crate) fn pop(&mut self) -> Option<FileRequest> {
        while let Some(place) = self.places.pop_front() {
            self.left += 1;
            if let Some(request) = place {
                if let Some(index) = &mut self.index {
                    index.remove(&request.id);
                }
                self.note_taken();
                return Some(request);
            }
        }
        None
    }

    /// Takes the request with this id.
    pub(crate) fn take(&mut self, id: u64) -> Option<FileRequest> {
        let place = self.place_of(id)?;
        let request = self.places.get_mut(place)?.take();
        if request.is_some() {
            self.note_taken();
        }
        request
    }

    /// Takes all requests, oldest first.
    pub(crate) fn take_all(&mut self) -> Vec<FileRequest> {
        std::mem::take(self).places.into_iter().flatten().collect()
    }

    /// Returns the place of the request with this id.
    fn place_of(&mut self, id: u64) -> Option<usize> {
        if self.index.is_none() && self.places.len() <= FEW {
            let is_it = |place: &Option<FileRequest>| {
                place.as_ref().is_some_and(|request| request.id == id)
            };
            return self.places.iter().position(is_it);
        }
        let (places, left) = (&self.places, self.left);
        let index = self.index.get_or_insert_with(|| {
            let numbered = places.iter().zip(left..);
            numbered.filter_map(|(request, at)| Some((request.as_ref()?.id, at))).collect()
        });
        let at = index.remove(&id)?;
        usize::try_from(at - left).ok()
    }

    /// Updates the count after a request was removed.
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
    use crate::backend::files::{FileKind, FileRef, FileTarget, Issuer};
    use crate::types::source::Descriptor;

    struct File;

    impl FileRef for File {
        fn descriptor(&self) -> Descriptor {
            unreachable!("nothing is done with it")
        }

        fn has_positions(&self) -> bool {
            true
        }
    }

    struct Nobody;

    impl Issuer for Nobody {
        fn complete(&self, _: FileRequest) {}
    }

    fn request(id: u64) -> FileRequest {
        let issuer: Weak<Nobody> = Weak::new();
        let target = FileTarget { file: Arc::new(File), offset: 0, issuer };
        FileRequest::new(id, target, FileKind::SyncAll, None)
    }

    proptest! {
        #[test]
        fn it_does_what_a_plain_list_does(steps in vec((0..8_u8, any::<prop::sample::Index>()), 1..400)) {
            let mut queue = RequestQueue::default();
            let mut plain: Vec<u64> = Vec::new();
            let mut next = 0;
            for (step, which) in steps {
                match step {
                    0..5 => {
                        queue.push(request(next));
                        plain.push(next);
                        next += 1;
                    }
                    5 => {
                        let first = (!plain.is_empty()).then(|| plain.remove(0));
                        prop_assert_eq!(queue.pop().map(|request| request.id), first);
                    }
                    6 if !plain.is_empty() => {
                        let id = plain.remove(which.index(plain.len()));
                        prop_assert_eq!(queue.take(id).map(|request| request.id), Some(id));
                        prop_assert!(queue.take(id).is_none());
                    }
                    _ => prop_assert!(queue.take(next).is_none()),
                }
                prop_assert_eq!((queue.len(), queue.is_empty()), (plain.len(), plain.is_empty()));
            }
            let left: Vec<_> = queue.take_all().into_iter().map(|request| request.id).collect();
            prop_assert_eq!(left, plain);
            prop_assert!(queue.is_empty());
        }
    }

    #[test]
    fn many_jobs_are_taken_from_the_end_by_an_index() {
        let mut queue = RequestQueue::default();
        (0..100).for_each(|id| queue.push(request(id)));
        assert!(queue.take(99).is_some() && queue.index.is_some());
        queue.push(request(100));
        assert!((1..99).rev().chain([100]).all(|id| queue.take(id).is_some()));
        assert_eq!((queue.len(), queue.index.as_ref().map(HashMap::len)), (1, Some(1)));
        assert!(queue.pop().is_some_and(|request| request.id == 0));
        assert!(queue.index.is_none() && queue.places.is_empty());
    }
}
