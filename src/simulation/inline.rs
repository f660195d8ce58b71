//! Work on other threads without their timing.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Runs `work` to its end and lets no other task in between. The journal and the file sink work on threads of their
/// own; which of two threads is first would otherwise depend on the machine and not on the seed.
pub(super) fn to_its_end<F: Future>(work: F) -> F::Output {
    // A task's budget would make it wait for the others.
    let mut work = pin!(tokio::task::unconstrained(work));
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match work.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
