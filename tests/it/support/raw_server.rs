//! A server that says exactly the bytes it is told to, since a proper one cannot misbehave.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// What the server does on each connection once a request has come.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Script {
    /// Says this and closes.
    Say(&'static [u8]),
    /// Says this and resets the connection.
    SayAndReset(&'static [u8]),
    /// Says this, then one space every 50 ms for as long as somebody listens.
    Drip(&'static [u8]),
    /// Says nothing and holds the connection.
    Hang,
}

/// Serves until the runtime ends; returns the address.
pub(crate) async fn serve(script: Script) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(play(stream, script));
        }
    });
    address
}

async fn play(mut stream: TcpStream, script: Script) -> std::io::Result<()> {
    let mut request = [0; 64 * 1024];
    let _n_bytes = stream.read(&mut request).await?;
    match script {
        Script::Say(bytes) => stream.write_all(bytes).await,
        Script::SayAndReset(bytes) => {
            stream.write_all(bytes).await?;
            sleep(Duration::from_millis(50)).await;
            stream.set_zero_linger()
        }
        Script::Drip(bytes) => {
            stream.write_all(bytes).await?;
            loop {
                sleep(Duration::from_millis(50)).await;
                stream.write_all(b" ").await?;
            }
        }
        Script::Hang => std::future::pending().await,
    }
}
