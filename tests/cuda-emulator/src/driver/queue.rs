//! Streams: queues of work that runs when somebody waits for it.

use super::state::{Emulator, Handle};
use super::status::{Outcome, Status, Stop};
use super::work::Work;
use std::collections::VecDeque;

/// A stream, or another queue of work.
pub(crate) struct Stream {
    pub device: usize,
    /// True if it waits for the default stream and the default stream for it.
    pub is_blocking: bool,
    /// False after the program has destroyed it. What was submitted still runs.
    pub is_alive: bool,
    queue: VecDeque<Work>,
    /// Number of works that have run.
    done: u64,
}

/// A place in a stream: the work that was submitted before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub stream: Handle,
    position: u64,
}

impl Stream {
    /// Creates a stream.
    pub(crate) fn new(device: usize, is_blocking: bool) -> Stream {
        Stream { device, is_blocking, is_alive: true, queue: VecDeque::new(), done: 0 }
    }

    /// Forgets the work that has not run.
    pub(crate) fn clear(&mut self) {
        self.done += self.queue.len() as u64;
        self.queue.clear();
    }

    fn end(&self) -> u64 {
        self.done + self.queue.len() as u64
    }
}

impl Emulator {
    /// Adds a stream.
    pub(crate) fn add_stream(&mut self, device: usize, is_blocking: bool) -> Handle {
        let handle = self.handle();
        self.streams.insert(handle, Stream::new(device, is_blocking));
        handle
    }

    /// Returns the stream of a device that the program names.
    pub(crate) fn stream(&self, device: usize, handle: Handle) -> Outcome<Handle> {
        if handle <= 1 {
            return Ok(self.devices[device].default_stream);
        }
        let is_right = self.streams.get(&handle).is_some_and(|stream| stream.device == device && stream.is_alive);
        if is_right { Ok(handle) } else { Err(Status::INVALID_HANDLE) }
    }

    /// Submits work to a stream and returns the place after it.
    ///
    /// The work waits for the marks of the memory whose addresses it has, and for the default stream, as the driver has it.
    pub(crate) fn submit(&mut self, stream: Handle, work: Work) -> Outcome<Point> {
        let mut waits = self.default_stream_order(stream);
        for address in work.addresses() {
            if let Some(block) = self.memory.find(address) {
                if !block.users.contains(&stream) {
                    block.users.push(stream);
                }
                waits.extend(block.marks);
            }
        }
        waits.sort_unstable();
        waits.dedup();
        for other in waits {
            self.submit_wait(stream, other)?;
        }
        self.push(stream, work)
    }

    /// Makes a stream wait for what another one has now.
    fn submit_wait(&mut self, stream: Handle, other: Handle) -> Outcome {
        match self.end_of(other).filter(|&point| !self.is_complete(point)) {
            Some(point) => self.push(stream, Work::Wait(point)).map(drop),
            None => Ok(()),
        }
    }

    fn push(&mut self, stream: Handle, work: Work) -> Outcome<Point> {
        let queue = self.streams.get_mut(&stream).ok_or(Status::INVALID_HANDLE)?;
        queue.queue.push_back(work);
        Ok(Point { stream, position: queue.end() })
    }

    /// Returns the streams that work on `stream` waits for because one of them is the default stream.
    fn default_stream_order(&self, stream: Handle) -> Vec<Handle> {
        let Some(this) = self.streams.get(&stream) else { return Vec::new() };
        let default = self.devices[this.device].default_stream;
        if stream != default {
            return if this.is_blocking { vec![default] } else { Vec::new() };
        }
        self.streams_of(this.device).filter(|other| *other != stream && self.streams[other].is_blocking).collect()
    }

    /// Submits a mark of an allocation: it waits for the streams that use the allocation, and they wait for it.
    pub(crate) fn submit_mark(&mut self, address: u64, work: Work) -> Outcome {
        let Some(block) = self.memory.find(address) else { return Err(Status::INVALID_VALUE) };
        let (device, users, queue) = (block.device, block.users.clone(), block.marks);
        let queue = queue.unwrap_or_else(|| self.add_stream(device, false));
        if let Some(block) = self.memory.find(address) {
            block.marks = Some(queue);
        }
        for user in users {
            self.submit_wait(queue, user)?;
        }
        let point = self.push(queue, work)?;
        let is_first = self.streams.get(&queue).is_some_and(|stream| stream.queue.len() == 1);
        if is_first { self.finish(point) } else { Ok(()) }
    }

    /// Ends a stream. What was submitted to it still runs.
    pub(crate) fn end_stream(&mut self, handle: Handle) {
        if let Some(stream) = self.streams.get_mut(&handle) {
            stream.is_alive = false;
            if stream.queue.is_empty() {
                self.streams.remove(&handle);
            }
        }
    }

    /// Returns the place after all work of a stream.
    pub(crate) fn end_of(&self, stream: Handle) -> Option<Point> {
        self.streams.get(&stream).map(|found| Point { stream, position: found.end() })
    }

    /// True if the work before a place has run.
    pub(crate) fn is_complete(&self, point: Point) -> bool {
        self.streams.get(&point.stream).is_none_or(|stream| stream.done >= point.position)
    }

    /// Runs the work before a place, and what it waits for. Returns the fault of its device, if there is one.
    pub(crate) fn finish(&mut self, point: Point) -> Outcome {
        let device = self.streams.get(&point.stream).map(|stream| stream.device);
        let mut goals = vec![point];
        while let Some(&goal) = goals.last() {
            match self.blocker(goal) {
                Some(earlier) => goals.push(earlier),
                None if self.is_complete(goal) => drop(goals.pop()),
                None => self.step(goal.stream),
            }
        }
        device.and_then(|device| self.devices[device].fault).map_or(Ok(()), Err)
    }

    /// Returns the place that the next work before `goal` waits for.
    fn blocker(&self, goal: Point) -> Option<Point> {
        let stream = self.streams.get(&goal.stream).filter(|stream| stream.done < goal.position)?;
        match stream.queue.front() {
            Some(Work::Wait(point)) if !self.is_complete(*point) => Some(*point),
            _ => None,
        }
    }

    /// Runs the next work of a stream.
    fn step(&mut self, handle: Handle) {
        let Some(stream) = self.streams.get_mut(&handle) else { return };
        let device = stream.device;
        if let Some(work) = stream.queue.pop_front() {
            stream.done += 1;
            if let Err(stop) = self.perform(device, &work) {
                self.stop(device, stop);
            }
        }
    }

    /// Runs some work before a place, for a caller who asks again and again. Returns whether all has run.
    pub(crate) fn advance(&mut self, point: Point) -> Outcome {
        let mut goal = point;
        while let Some(earlier) = self.blocker(goal) {
            goal = earlier;
        }
        if !self.is_complete(goal) {
            self.step(goal.stream);
        }
        let device = self.streams.get(&point.stream).map(|stream| stream.device);
        if let Some(fault) = device.and_then(|device| self.devices[device].fault) {
            return Err(fault);
        }
        if self.is_complete(point) { Ok(()) } else { Err(Status::NOT_READY) }
    }

    /// Runs all work of a device.
    pub(crate) fn finish_device(&mut self, device: usize) -> Outcome {
        let mut streams: Vec<Handle> = self.streams_of(device).collect();
        streams.sort_unstable();
        for point in streams.into_iter().filter_map(|stream| self.end_of(stream)).collect::<Vec<Point>>() {
            self.finish(point)?;
        }
        let is_over = |stream: &Stream| stream.device == device && !stream.is_alive;
        self.streams.retain(|_, stream| !is_over(stream));
        Ok(())
    }

    fn streams_of(&self, device: usize) -> impl Iterator<Item = Handle> {
        self.streams.iter().filter(move |(_, stream)| stream.device == device).map(|(&handle, _)| handle)
    }
}

impl Stop {
    /// Returns the fault of work that names something that exists no more.
    pub(crate) fn stale(what: &str) -> Stop {
        Stop::new(Status::LAUNCH_FAILED, format!("StaleHandle: {what}"))
    }
}
