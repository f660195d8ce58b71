//! Certificates: the receiver's is verified, ours is shown.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use order_feed_agent::observe::logging::ErrorChain;
use order_feed_agent::sink::{EventSink, Refusal};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::{Request, envelope, record, sink};

#[tokio::test]
async fn a_receiver_is_believed_by_its_certificate_only() {
    let (ours, foreign) = (Authority::new("ours"), Authority::new("foreign"));
    let directory = tempfile::tempdir().unwrap();
    let (ca, other_ca) = (directory.path().join("ca.pem"), directory.path().join("other.pem"));
    fs::write(&ca, ours.pem()).unwrap();
    fs::write(&other_ca, foreign.pem()).unwrap();
    let trusting = |file: &Path| format!("ca_file = \"{}\"\n", file.display());

    let (address, mut requests) = server(&ours.issue("127.0.0.1"), None).await;
    deliver(address, &trusting(&ca)).await.unwrap();
    assert_eq!(requests.recv().await.unwrap().body, envelope(1).line);
    // Of an authority that nobody, or only somebody else, trusts; and for another name.
    let (elsewhere, mut unheard) = server(&ours.issue("example.com"), None).await;
    for (address, more) in
        [(address, String::new()), (address, trusting(&other_ca)), (elsewhere, trusting(&ca))]
    {
        let told = ErrorChain(&deliver(address, &more).await.unwrap_err()).to_string();
        assert!(told.contains("certificate"), "{told}");
    }
    assert!(requests.try_recv().is_err() && unheard.try_recv().is_err());
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_a_receiver_that_asks_for_one() {
    let (servers, clients, foreign) =
        (Authority::new("servers"), Authority::new("clients"), Authority::new("foreign"));
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("ca.pem"), servers.pem()).unwrap();
    for (name, authority) in [("client.pem", &clients), ("foreign.pem", &foreign)] {
        let Issued { certificate, key } = authority.issue("agent");
        fs::write(path(name), certificate + &key).unwrap();
        fs::set_permissions(path(name), Permissions::from_mode(0o600)).unwrap();
    }
    let (address, mut requests) = server(&servers.issue("127.0.0.1"), Some(&clients)).await;
    let ca = format!("ca_file = \"{}\"\n", path("ca.pem").display());
    let showing = |name: &str| format!("{ca}client_cert = \"{}\"\n", path(name).display());
    deliver(address, &showing("client.pem")).await.unwrap();
    requests.recv().await.unwrap();
    for more in [ca.clone(), showing("foreign.pem")] {
        deliver(address, &more).await.unwrap_err();
    }
    assert!(requests.try_recv().is_err());
}

async fn deliver(address: SocketAddr, more: &str) -> Result<(), Refusal> {
    sink(&format!("https://{address}"), more).deliver(&envelope(1)).await
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

/// As PEM.
struct Issued {
    certificate: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn issue(&self, host: &str) -> Issued {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap().pem();
        Issued { certificate, key: key.serialize_pem() }
    }
}

/// Answers 204 to whoever is let in; only those with a certificate of `clients`, where that is given.
async fn server(own: &Issued, clients: Option<&Authority>) -> (SocketAddr, UnboundedReceiver<Request>) {
    let builder = ServerConfig::builder();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.0.der().clone()).unwrap();
            builder.with_client_cert_verifier(WebPkiClientVerifier::builder(roots.into()).build().unwrap())
        }
    };
    let certificate = CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
    let config = builder.with_single_cert(vec![certificate], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requests) = unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, sender) = (acceptor.clone(), sender.clone());
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    record(stream, 0, "HTTP/1.1 204 No Content\r\n\r\n", sender).await.ok();
                }
            });
        }
    });
    (address, requests)
}
