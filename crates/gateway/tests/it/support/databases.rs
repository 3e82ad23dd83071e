//! The databases of the tests. Migrating an empty database takes longer than most tests, so most of them get a copy of
//! one that is migrated once.

use std::cell::RefCell;
use std::path::Path;
use std::sync::mpsc;
use std::sync::{LazyLock, OnceLock};

use gateway::services::migrate_all;
use gateway_core::time::Timestamp;
use gateway_store::Db;
use gateway_store::testing::{copy_postgres_database, create_postgres_database, drop_postgres_database};
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// Creates an empty PostgreSQL database and returns its URL.
pub async fn empty_postgres() -> String {
    create_postgres_database(server(), &new_name()).await.unwrap()
}

/// Creates a PostgreSQL database with the schema of this release and returns its URL.
pub async fn migrated_postgres() -> String {
    static TEMPLATE: OnceCell<String> = OnceCell::const_new();
    let template = TEMPLATE.get_or_init(|| async {
        let name = format!("gateway_template_{}", uuid::Uuid::new_v4().simple());
        migrate(&create_postgres_database(server(), &name).await.unwrap()).await;
        name
    });
    copy_postgres_database(server(), template.await, &new_name()).await.unwrap()
}

/// Puts a SQLite database with the schema of this release into an empty data directory.
pub async fn migrated_sqlite(data: &Path) {
    static TEMPLATE: OnceCell<Vec<(std::ffi::OsString, Vec<u8>)>> = OnceCell::const_new();
    let template = TEMPLATE.get_or_init(|| async {
        let directory = TempDir::new().unwrap();
        migrate(&format!("sqlite://{}", directory.path().join("gateway.db").display())).await;
        let files = directory.path().read_dir().unwrap().map(Result::unwrap);
        files.map(|file| (file.file_name(), std::fs::read(file.path()).unwrap())).collect()
    });
    for (name, bytes) in template.await {
        std::fs::write(data.join(name), bytes).unwrap();
    }
}

async fn migrate(url: &str) {
    let db = Db::open(url).await.unwrap();
    migrate_all(&db, Timestamp(1)).await.unwrap().close().await;
    db.close().await;
}

fn server() -> &'static str {
    static SERVER: LazyLock<String> = LazyLock::new(|| {
        std::env::var("TEST_POSTGRES_URL").expect(
            "TEST_POSTGRES_URL is not set: run the tests with `make test`, which starts a private PostgreSQL",
        )
    });
    &SERVER
}

/// The name of a database that is dropped when the thread of the test ends.
fn new_name() -> String {
    thread_local! {
        static TO_DROP: RefCell<DroppedWithThread> = const { RefCell::new(DroppedWithThread(Vec::new())) };
    }
    let name = format!("gateway_{}", uuid::Uuid::new_v4().simple());
    TO_DROP.with_borrow_mut(|databases| databases.0.push(name.clone()));
    name
}

/// Names of databases that are dropped when the thread ends.
struct DroppedWithThread(Vec<String>);

impl Drop for DroppedWithThread {
    fn drop(&mut self) {
        static DROPPER: OnceLock<mpsc::Sender<String>> = OnceLock::new();
        let dropper = DROPPER.get_or_init(|| {
            let (sender, names) = mpsc::channel();
            std::thread::spawn(move || drop_databases(&names));
            sender
        });
        for name in self.0.drain(..) {
            let _ = dropper.send(name);
        }
    }
}

/// A database that cannot be dropped stays until the server ends.
fn drop_databases(names: &mpsc::Receiver<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for name in names {
        let _ = runtime.block_on(drop_postgres_database(server(), &name));
    }
}
