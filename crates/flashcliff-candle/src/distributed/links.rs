//! Connections between rank 0 and the other ranks, for messages and for signs of life.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::environment::World;
use super::fault::Fault;
use super::rendezvous;
use super::wire::{self, Kind};

/// The time that a rank waits, when it ends, for the ends of the others.
const FAREWELL: Duration = Duration::from_millis(500);

/// The times that ranks wait for each other.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The longest time until all ranks are there.
    pub join: Duration,
    /// The time between two signs of life.
    pub beat: Duration,
    /// The number of beats without a sign after which a rank is lost.
    pub patience: u32,
}

impl Default for Timing {
    /// Five minutes to come, and a sign of life each second; 30 s of silence are a loss.
    fn default() -> Self {
        Self {
            join: Duration::from_secs(300),
            beat: Duration::from_secs(1),
            patience: 30,
        }
    }
}

/// A message with the rank that it comes from, or what ended a connection.
type Received = Result<(usize, Vec<u8>), Fault>;

/// The function that is told of a loss. It is called on another thread than that of the work, which may wait for the lost rank in vain.
type OnLoss = Box<dyn Fn(&Fault) + Send + Sync>;

/// The connections of a rank: those to all others for rank 0, that to rank 0 for any other.
///
/// The end of a process closes its connections, whatever ended it, and its peers notice at once. Where a machine or a network goes
/// away without that, silence is noticed.
pub struct Links {
    rank: usize,
    size: usize,
    peers: Vec<Peer>,
    inbox: Receiver<Received>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Peer {
    rank: usize,
    writer: Arc<Mutex<TcpStream>>,
    reader: JoinHandle<()>,
}

/// What the threads of the connections share.
struct Shared {
    /// Whether this rank has ended its work, so that the end of another rank is not a loss.
    ended: AtomicBool,
    on_loss: OnLoss,
    sender: Mutex<Sender<Received>>,
    /// Wakes the thread of the beats for the end.
    wake: (Mutex<bool>, Condvar),
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links")
            .field("rank", &self.rank)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Links {
    /// Connects the ranks of a run. Rank 0 waits for the others at its address; they try until it is there.
    ///
    /// `agreement` is a text of lines, the same on all ranks, that says what they are going to do. `stop` is asked now and then whether to
    /// give up. `on_loss` is called on a separate thread when another rank is lost or fails before this one has ended its work.
    ///
    /// # Errors
    /// All of [`Fault`], except errors of NCCL. If a rank does not fit, all ranks that are there get an error.
    pub fn join(
        world: &World,
        agreement: &str,
        timing: Timing,
        stop: &dyn Fn() -> bool,
        on_loss: impl Fn(&Fault) + Send + Sync + 'static,
    ) -> Result<Self, Fault> {
        let streams = match world.rank {
            0 => rendezvous::gather(world, agreement, timing, stop)?,
            _ => vec![(0, rendezvous::come(world, agreement, timing, stop)?)],
        };
        let (sender, inbox) = channel();
        let shared = Arc::new(Shared {
            ended: AtomicBool::new(false),
            on_loss: Box::new(on_loss),
            sender: Mutex::new(sender),
            wake: (Mutex::new(false), Condvar::new()),
        });
        let mut peers = Vec::with_capacity(streams.len());
        for (rank, stream) in streams {
            let lost = |error: io::Error| Fault::Lost {
                rank,
                reason: error.to_string(),
            };
            prepare(&stream, timing).map_err(lost)?;
            let reader = stream.try_clone().map_err(lost)?;
            let shared = shared.clone();
            peers.push(Peer {
                rank,
                writer: Arc::new(Mutex::new(stream)),
                reader: thread::spawn(move || shared.listen(rank, reader, timing)),
            });
        }
        let writers = peers.iter().map(|peer| peer.writer.clone()).collect();
        let beating = shared.clone();
        thread::spawn(move || beating.beat(writers, timing.beat));
        Ok(Self {
            rank: world.rank,
            size: world.size,
            peers,
            inbox,
            shared,
        })
    }

    /// The number of this rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Sends a message: from rank 0 to all others, from any other to rank 0.
    ///
    /// # Errors
    /// [`Fault::Lost`].
    pub fn send(&self, message: &[u8]) -> Result<(), Fault> {
        self.write(Kind::Message, message)
    }

    /// Waits for the next message. Returns its rank and its bytes.
    ///
    /// # Errors
    /// [`Fault::Lost`], [`Fault::Failed`].
    pub fn receive(&self) -> Result<(usize, Vec<u8>), Fault> {
        match self.inbox.recv() {
            Ok(received) => received,
            Err(_) => Err(self.gone()),
        }
    }

    /// The next message, if there is one within some time.
    ///
    /// # Errors
    /// [`Fault::Lost`], [`Fault::Failed`].
    pub fn receive_within(&self, time: Duration) -> Result<Option<(usize, Vec<u8>)>, Fault> {
        match self.inbox.recv_timeout(time) {
            Ok(received) => received.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.gone()),
        }
    }

    /// Says that this rank has done its work. From now on the end of another rank is not a loss.
    pub fn finish(&self) {
        self.end(Kind::Bye, &[]);
    }

    /// Says that this rank cannot go on, and why.
    pub fn fail(&self, reason: &str) {
        self.end(Kind::Failure, reason.as_bytes());
    }

    /// No longer takes the end of other ranks for a loss, as before the message that ends their work.
    pub fn expect_end(&self) {
        self.shared.ended.store(true, Ordering::SeqCst);
    }

    fn end(&self, kind: Kind, bytes: &[u8]) {
        self.expect_end();
        // Peers that are gone need no farewell.
        let _ = self.write(kind, bytes);
        for peer in &self.peers {
            let _ = lock(&peer.writer).shutdown(Shutdown::Write);
        }
        // Bytes that the other side still has to read would be lost if this side closed with bytes unread.
        let start = Instant::now();
        while start.elapsed() < FAREWELL && !self.peers.iter().all(|peer| peer.reader.is_finished())
        {
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn write(&self, kind: Kind, bytes: &[u8]) -> Result<(), Fault> {
        let mut first = Ok(());
        for peer in &self.peers {
            let written = wire::write(&mut *lock(&peer.writer), kind, bytes);
            if let (Err(error), Ok(())) = (written, &first) {
                first = Err(Fault::Lost {
                    rank: peer.rank,
                    reason: explain(&error),
                });
            }
        }
        first
    }

    fn gone(&self) -> Fault {
        Fault::Lost {
            rank: self.peers.first().map_or(0, |peer| peer.rank),
            reason: "it has ended its work".to_owned(),
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.expect_end();
        *lock(&self.shared.wake.0) = true;
        self.shared.wake.1.notify_all();
        for peer in &self.peers {
            let _ = lock(&peer.writer).shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    /// Takes the frames of a peer until its end.
    fn listen(&self, rank: usize, mut stream: TcpStream, timing: Timing) {
        let fault = loop {
            match wire::read(&mut stream, usize::MAX, timing.patience) {
                Ok((Kind::Beat, _)) => {}
                Ok((Kind::Message, bytes)) => {
                    let _ = lock(&self.sender).send(Ok((rank, bytes)));
                }
                Ok((Kind::Bye, _)) => {
                    let reason = "it has ended its work".to_owned();
                    let _ = lock(&self.sender).send(Err(Fault::Lost { rank, reason }));
                    return;
                }
                Ok((Kind::Failure, bytes)) => {
                    let reason = String::from_utf8_lossy(&bytes).into_owned();
                    break Fault::Failed { rank, reason };
                }
                Ok((kind, _)) => {
                    break Fault::Unexpected {
                        rank,
                        expected: "a message",
                        got: format!("{kind:?}"),
                    };
                }
                Err(error) => {
                    let silent = timing.beat * timing.patience;
                    let reason = match error.kind() {
                        ErrorKind::TimedOut => format!("no sign of life for {silent:.0?}"),
                        _ => explain(&error),
                    };
                    break Fault::Lost { rank, reason };
                }
            }
        };
        if !self.ended.load(Ordering::SeqCst) {
            (self.on_loss)(&fault);
            let _ = lock(&self.sender).send(Err(fault));
        }
    }

    /// Sends signs of life until the end.
    fn beat(&self, writers: Vec<Arc<Mutex<TcpStream>>>, every: Duration) {
        let mut ended = lock(&self.wake.0);
        while !*ended {
            let waited = self.wake.1.wait_timeout(ended, every);
            ended = waited.unwrap_or_else(PoisonError::into_inner).0;
            if *ended {
                return;
            }
            for writer in &writers {
                // The reader of this connection notices its end. A thread that writes a message is a sign of life too.
                if let Ok(mut writer) = writer.try_lock() {
                    let _ = wire::write(&mut *writer, Kind::Beat, &[]);
                }
            }
        }
    }
}

/// Locks what is whole even after a panic.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn prepare(stream: &TcpStream, timing: Timing) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timing.beat))?;
    stream.set_write_timeout(Some(timing.beat * timing.patience.max(1)))
}

/// The error of a connection in words.
fn explain(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe => "its connection is closed, so its process has ended".to_owned(),
        _ => error.to_string(),
    }
}
