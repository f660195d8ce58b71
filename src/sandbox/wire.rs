//! How an answer goes over the wire: whole, or spoilt on its way.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// An answer and what becomes of it.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) response: Response<Bytes>,
    pub(super) delay: Duration,
    pub(super) manner: Manner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    Whole,
    Drip {
        bytes: usize,
        every: Duration,
    },
    /// Cut off after this many bytes of the body.
    Cut {
        after: usize,
    },
    /// The connection ends without an answer.
    Close,
    Reset,
}

impl Reply {
    pub(super) fn whole(response: Response<Bytes>) -> Self {
        Self { response, delay: Duration::ZERO, manner: Manner::Whole }
    }

    /// What is sent; none where the connection ends without an answer.
    pub(super) fn outgoing(self) -> Option<Response<Outgoing>> {
        let manner = self.manner;
        match manner {
            Manner::Whole => {
                Some(self.response.map(|body| Outgoing::paced(body, usize::MAX, Duration::ZERO)))
            }
            Manner::Drip { bytes, every } => {
                Some(self.response.map(|body| Outgoing::paced(body, bytes, every)))
            }
            // Nothing can be missing in an empty body.
            Manner::Cut { .. } if self.response.body().is_empty() => None,
            Manner::Cut { after } => Some(self.response.map(|body| Outgoing::cut(body, after))),
            Manner::Close | Manner::Reset => None,
        }
    }
}

/// A body that is sent in pieces and may break off.
#[derive(Debug)]
pub(super) struct Outgoing {
    pieces: VecDeque<Bytes>,
    /// Before each piece but the first, and before the end.
    pause: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Bytes that are announced and not sent yet.
    left: u64,
}

/// The body ends here although more was announced.
#[derive(Debug, thiserror::Error)]
#[error("cut off on purpose")]
pub(super) struct CutOff;

/// Time for what was sent to leave before the connection ends.
const FLUSH: Duration = Duration::from_millis(50);

impl Outgoing {
    fn paced(body: Bytes, piece: usize, pause: Duration) -> Self {
        let left = body.len() as u64;
        Self { pieces: split(body, piece), pause, sleep: None, left }
    }

    /// Announces the whole body and sends its beginning, at least one byte less.
    fn cut(body: Bytes, after: usize) -> Self {
        let left = body.len() as u64;
        let sent = body.slice(..after.min(body.len().saturating_sub(1)));
        Self { pieces: split(sent, usize::MAX), pause: FLUSH, sleep: Some(Box::pin(sleep(FLUSH))), left }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        if let Some(sleep) = &mut self.sleep {
            ready!(sleep.as_mut().poll(cx));
            self.sleep = None;
        }
        let Some(piece) = self.pieces.pop_front() else {
            return Poll::Ready((self.left > 0).then_some(Err(CutOff)));
        };
        self.left = self.left.saturating_sub(piece.len() as u64);
        if !self.pause.is_zero() {
            self.sleep = Some(Box::pin(sleep(self.pause)));
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

fn split(mut body: Bytes, piece: usize) -> VecDeque<Bytes> {
    let mut pieces = VecDeque::new();
    while !body.is_empty() {
        pieces.push_back(body.split_to(piece.clamp(1, body.len())));
    }
    pieces
}
