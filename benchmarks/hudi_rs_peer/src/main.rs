//! hudi-rs as a writer of its own: `upsert TABLE ROWS.parquet` writes one commit, `find TABLE ROWS.parquet KEY`
//! finds the file groups of the keys in a column. Prints JSON: wall seconds, processor seconds, what was found.

use std::env;
use std::fs::{self, File};
use std::time::Instant;

use arrow_array::{RecordBatch, StringArray};
use hudi_core::index::{HoodieKey, for_table_checked};
use hudi_core::table::Table;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// Processor seconds of this process, of all threads: user and system, in ticks of 10 ms.
fn processor() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

fn rows(path: &str) -> Vec<RecordBatch> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let reader = builder.with_batch_size(1 << 20).build().unwrap();
    reader.map(Result::unwrap).collect()
}

#[tokio::main]
async fn main() {
    let given: Vec<String> = env::args().collect();
    let batches = rows(&given[3]);
    let (began, used) = (Instant::now(), processor());
    let mut table = Table::new(&given[2]).await.unwrap();
    let found = match given[1].as_str() {
        "upsert" => {
            let done = table.upsert(batches).await.unwrap();
            format!("\"updates\": {}, \"inserts\": {}", done.num_updates, done.num_inserts)
        }
        "find" => {
            let mut keys = Vec::new();
            for batch in &batches {
                let column = batch.column_by_name(&given[4]).unwrap();
                let column = column.as_any().downcast_ref::<StringArray>().unwrap();
                keys.extend(column.iter().map(|key| HoodieKey {
                    record_key: key.unwrap().to_string(),
                    partition_path: String::new(),
                }));
            }
            let places = for_table_checked(&table).await.tag_location(&table, &keys).await.unwrap();
            format!("\"found\": {}", places.values().filter(|place| place.is_some()).count())
        }
        other => panic!("{other}: neither upsert nor find"),
    };
    println!(
        "{{\"seconds\": {}, \"processor\": {}, {found}}}",
        began.elapsed().as_secs_f64(),
        processor() - used
    );
}
