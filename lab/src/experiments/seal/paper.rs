// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of the file-encryption paper as reference series: every average, minimum and maximum,
//! the number of outliers, and the best number of threads.
//!
//! Two processors of 2012: two Xeon E5-2640 (12 cores together, with an AES unit), and a Xeon Phi
//! 5110P (60 cores, without). A hundred repetitions a cell. A value that the paper does not
//! contain, or that cannot be read in print, is left out. Shapes can be compared, milliseconds
//! cannot.
//!
//! Sources: the file-encryption paper (Shirase: parallel encryption on the many-core coprocessor
//! Xeon Phi), tables 2 to 4 and A.1.
//! Does not repeat its averages without outliers for every cell; table 4 has the best of them.

use super::grid::{BEST_AVERAGE, BEST_THREADS, PER_RUNS, folder};
use super::outlier::OVER_A_SECOND;
use super::{BYTES, FILES, FOLDER, THREADS};
use measure::results::{Results, Row};
use measure::statistics::Figure;

/// Column of the paper's tables.
#[derive(Clone, Copy)]
struct Column {
    member: &'static str,
    threads: usize,
}

const fn xeon(threads: usize) -> Column {
    Column { member: XEON, threads }
}

const fn phi(threads: usize) -> Column {
    Column { member: PHI, threads }
}

/// Adds the rows of the sizes that were measured here.
pub(super) fn add(sizes: &[u64], results: &mut Results) {
    let wanted = |index: &usize| sizes.contains(&(LEAST_BYTES << index));
    for index in (0..AVERAGE_10.len()).filter(wanted) {
        let cells = |files: usize| match files {
            10 => [&AVERAGE_10[index][..], &MINIMUM_10[index], &MAXIMUM_10[index]],
            _ => [&AVERAGE_100[index][..], &MINIMUM_100[index], &MAXIMUM_100[index]],
        };
        for files in FILES {
            let columns = if files == 10 { &COLUMNS_10[..] } else { &COLUMNS_100 };
            for (metric, values) in ["average", "minimum", "maximum"].iter().zip(cells(files)) {
                for (column, value) in columns.iter().zip(values).filter(|(_, v)| **v > 0.0) {
                    let row = row(column.member, metric, "ms", *value, "A.1");
                    let row = row.with(FOLDER, folder(files)).with(BYTES, LEAST_BYTES << index);
                    results.rows.push(row.with(THREADS, column.threads).as_detail());
                }
            }
        }
        add_best(index, results);
    }
    add_outliers(sizes, results);
}

fn add_best(index: usize, results: &mut Results) {
    for (column, (threads, average)) in BEST[index].iter().enumerate() {
        let member = [XEON, PHI][column % 2];
        let files = FILES[column / 2];
        let with = |row: Row| row.with(FOLDER, folder(files)).with(BYTES, LEAST_BYTES << index);
        let best = row(member, BEST_THREADS, "", *threads, "table 4");
        results.rows.push(with(row(member, BEST_AVERAGE, "ms", *average, "table 4")));
        results.rows.push(with(best));
    }
}

/// Adds the outliers, by cell as details and for all measured sizes together.
fn add_outliers(sizes: &[u64], results: &mut Results) {
    let mut found = [0.0; 2];
    for &(files, bytes, column, outliers) in OUTLIERS {
        if !sizes.contains(&bytes) {
            continue;
        }
        found[usize::from(column.member == PHI)] += outliers;
        let source = if files == 10 { "table 2" } else { "table 3" };
        let row = row(column.member, OUTLIERS_OF_CELL, PER_RUNS, outliers, source);
        let row = row.with(FOLDER, folder(files)).with(BYTES, bytes);
        results.rows.push(row.with(THREADS, column.threads).as_detail());
    }
    let measured = AVERAGE_10.len().min((0..16).filter(|n| sizes.contains(&(128 << n))).count());
    if measured == 0 {
        return;
    }
    for (member, found) in [XEON, PHI].into_iter().zip(found) {
        let columns = COLUMNS_10.iter().chain(&COLUMNS_100);
        let cells = columns.filter(|column| column.member == member).count() * measured;
        let share = found / cells as f64;
        results.rows.push(row(member, OVER_A_SECOND, PER_RUNS, share, "tables 2 and 3"));
    }
}

fn row(member: &str, metric: &str, unit: &str, value: f64, place: &str) -> Row {
    let row = Row::new("seal", member, metric, unit, Figure::published(value));
    Row { published: Some(format!("the file-encryption paper, {place}")), ..row }
}

const XEON: &str = "paper: 2 Xeon E5-2640";
const PHI: &str = "paper: Xeon Phi 5110P";
const OUTLIERS_OF_CELL: &str = "outliers of a cell, over 1 s above the average";
const LEAST_BYTES: u64 = 128;

/// Columns of A.1.1.
const COLUMNS_10: [Column; 8] =
    [xeon(1), xeon(2), xeon(4), xeon(10), phi(1), phi(2), phi(4), phi(10)];
/// Columns of A.1.2. The Xeon was not measured with more threads.
#[rustfmt::skip]
const COLUMNS_100: [Column; 12] = [
    xeon(1), xeon(2), xeon(4), xeon(10), xeon(20),
    phi(1), phi(2), phi(4), phi(10), phi(20), phi(50), phi(100),
];

/// Cells of tables 2 and 3 that are not 0: files, bytes, column, outliers of 100 runs.
#[rustfmt::skip]
const OUTLIERS: &[(usize, u64, Column, f64)] = &[
    (10, 512 << 10, xeon(10), 3.0),
    (10, 1 << 20, xeon(10), 6.0),
    (10, 2 << 20, xeon(4), 3.0),
    (10, 2 << 20, xeon(10), 10.0),
    (10, 4 << 20, xeon(4), 2.0),
    (10, 4 << 20, xeon(10), 6.0),
    (100, 256 << 10, xeon(20), 6.0),
    (100, 512 << 10, xeon(10), 6.0),
    (100, 512 << 10, xeon(20), 21.0),
    (100, 1 << 20, xeon(10), 23.0),
    (100, 1 << 20, xeon(20), 25.0),
    (100, 2 << 20, xeon(1), 1.0),
    (100, 2 << 20, xeon(2), 1.0),
    (100, 2 << 20, xeon(4), 1.0),
    (100, 2 << 20, xeon(10), 33.0),
    (100, 2 << 20, xeon(20), 34.0),
    (100, 2 << 20, phi(2), 3.0),
    (100, 4 << 20, xeon(1), 1.0),
    (100, 4 << 20, xeon(4), 1.0),
    (100, 4 << 20, xeon(10), 12.0),
    (100, 4 << 20, xeon(20), 23.0),
    (100, 4 << 20, phi(2), 6.0),
    (100, 4 << 20, phi(50), 1.0),
    (100, 4 << 20, phi(100), 1.0),
];

/// Table 4: the best number of threads and the average there, outliers left out; 10 files on the
/// Xeon and on the Phi, then 100 files on both; one row a size.
const BEST: [[(f64, f64); 4]; 16] = [
    [(1.0, 2.672), (1.0, 20.84), (2.0, 8.744), (1.0, 40.42)],
    [(1.0, 2.685), (1.0, 20.81), (2.0, 8.727), (1.0, 41.54)],
    [(1.0, 2.783), (1.0, 20.97), (2.0, 8.755), (1.0, 45.95)],
    [(1.0, 2.949), (1.0, 21.32), (2.0, 9.018), (1.0, 51.05)],
    [(1.0, 3.145), (1.0, 22.23), (2.0, 9.873), (1.0, 56.03)],
    [(2.0, 3.288), (1.0, 23.99), (2.0, 10.22), (2.0, 60.84)],
    [(2.0, 3.857), (1.0, 26.99), (4.0, 12.34), (4.0, 65.33)],
    [(2.0, 4.815), (1.0, 33.89), (4.0, 16.16), (4.0, 77.49)],
    [(4.0, 6.469), (4.0, 40.74), (10.0, 20.99), (4.0, 110.9)],
    [(10.0, 8.541), (10.0, 44.74), (10.0, 25.17), (20.0, 122.0)],
    [(10.0, 12.19), (10.0, 53.31), (10.0, 40.73), (20.0, 203.5)],
    [(10.0, 18.11), (10.0, 67.72), (10.0, 65.87), (20.0, 294.6)],
    [(10.0, 23.5), (10.0, 99.17), (20.0, 99.05), (50.0, 440.3)],
    [(10.0, 41.98), (10.0, 154.7), (20.0, 173.3), (100.0, 686.7)],
    [(10.0, 67.44), (10.0, 259.6), (20.0, 318.1), (100.0, 1086.7)],
    [(10.0, 117.4), (10.0, 456.8), (20.0, 529.0), (100.0, 1588.1)],
];

/// A.1.1, milliseconds; one row a size from 128 bytes to 4 MiB; 0 where there is no value.
#[rustfmt::skip]
const AVERAGE_10: [[f64; 8]; 16] = [
    [2.672, 2.929, 3.601, 6.221, 20.84, 28.85, 34.06, 44.34],
    [2.685, 2.959, 3.64, 0.0, 20.81, 29.7, 33.5, 43.36],
    [2.783, 2.987, 3.711, 5.766, 20.97, 28.43, 34.73, 43.2],
    [2.949, 3.026, 3.66, 6.071, 21.32, 29.21, 33.63, 43.27],
    [3.145, 3.153, 3.706, 6.246, 22.23, 28.7, 34.45, 43.63],
    [3.639, 3.288, 3.707, 5.875, 23.99, 29.41, 32.16, 38.55],
    [4.846, 3.857, 4.1, 5.869, 26.99, 31.29, 35.11, 39.9],
    [7.105, 4.815, 5.015, 6.0, 33.89, 34.87, 35.7, 39.99],
    [11.51, 6.909, 6.469, 6.873, 47.05, 42.2, 40.74, 42.46],
    [17.87, 10.63, 9.097, 8.541, 74.36, 55.52, 48.67, 44.74],
    [26.49, 15.45, 13.89, 12.19, 130.9, 82.94, 68.83, 53.31],
    [43.28, 23.63, 21.75, 18.11, 242.0, 141.8, 103.0, 67.72],
    [80.44, 42.25, 32.76, 263.2, 460.6, 252.9, 168.7, 99.17],
    [131.1, 67.05, 60.59, 645.9, 896.3, 475.2, 324.8, 154.7],
    [249.0, 130.0, 279.8, 683.2, 1763.0, 940.2, 626.0, 259.6],
    [491.4, 252.5, 314.8, 452.8, 3462.4, 1771.9, 1121.4, 456.8],
];

#[rustfmt::skip]
const MINIMUM_10: [[f64; 8]; 16] = [
    [2.438, 2.651, 3.186, 4.742, 20.06, 27.22, 31.28, 40.31],
    [2.501, 2.803, 3.244, 5.848, 19.99, 27.4, 31.08, 39.51],
    [2.532, 2.815, 3.307, 4.791, 20.21, 27.27, 31.48, 39.68],
    [2.69, 2.357, 3.304, 4.777, 20.46, 26.7, 31.48, 39.4],
    [2.892, 2.861, 3.317, 4.757, 21.38, 27.1, 31.39, 39.86],
    [2.626, 2.925, 3.334, 4.606, 22.96, 25.97, 29.43, 34.91],
    [4.539, 3.378, 3.519, 4.445, 26.0, 27.27, 31.23, 36.02],
    [6.915, 4.002, 4.336, 4.792, 32.87, 31.32, 32.88, 36.65],
    [10.14, 5.176, 4.987, 5.663, 46.14, 38.06, 34.6, 37.86],
    [15.81, 7.474, 6.972, 6.152, 72.94, 51.58, 45.17, 40.25],
    [23.55, 12.95, 9.451, 9.355, 129.2, 80.96, 63.54, 49.07],
    [39.22, 21.68, 15.36, 12.78, 240.1, 137.7, 98.69, 62.54],
    [79.17, 40.21, 25.4, 18.11, 458.6, 248.8, 165.3, 94.28],
    [128.8, 64.61, 48.34, 28.75, 894.1, 469.2, 305.4, 147.7],
    [244.4, 125.7, 79.85, 48.0, 1740.7, 909.3, 573.1, 247.8],
    [479.0, 246.8, 151.1, 77.4, 3439.1, 1755.5, 1084.1, 422.3],
];

#[rustfmt::skip]
const MAXIMUM_10: [[f64; 8]; 16] = [
    [7.226, 3.104, 4.271, 30.58, 22.39, 34.31, 39.24, 49.1],
    [4.063, 3.667, 4.833, 9.959, 22.5, 33.52, 37.27, 49.44],
    [8.352, 3.222, 4.906, 10.43, 21.97, 30.67, 41.05, 49.33],
    [11.76, 3.425, 4.492, 24.86, 23.92, 34.0, 38.44, 48.36],
    [6.303, 3.462, 4.899, 28.71, 23.54, 31.49, 39.76, 47.86],
    [5.904, 3.494, 5.826, 23.62, 28.12, 32.7, 37.74, 42.98],
    [9.905, 4.626, 6.154, 14.54, 28.66, 35.08, 41.27, 46.54],
    [9.341, 5.246, 6.216, 9.848, 38.91, 39.34, 41.25, 45.14],
    [19.42, 7.459, 8.558, 16.96, 51.22, 45.42, 45.74, 49.24],
    [20.05, 13.13, 13.86, 15.18, 78.32, 60.4, 56.46, 49.24],
    [29.73, 21.6, 19.69, 17.93, 133.1, 89.82, 73.14, 61.7],
    [47.45, 37.95, 29.69, 22.19, 251.6, 155.7, 112.8, 77.19],
    [83.64, 48.06, 48.36, 12034.6, 464.7, 282.7, 184.3, 106.2],
    [154.0, 81.86, 88.12, 14136.9, 917.1, 479.4, 353.1, 169.9],
    [291.2, 152.7, 6085.5, 10368.3, 1767.7, 1048.9, 658.4, 280.5],
    [1080.1, 289.9, 6085.0, 6234.9, 3472.3, 2041.0, 1251.3, 487.9],
];

/// A.1.2. Four averages of the Phi with 100 threads are those without outliers, of which there were
/// none.
#[rustfmt::skip]
const AVERAGE_100: [[f64; 12]; 16] = [
    [9.73, 8.744, 12.13, 19.46, 27.89, 40.42, 55.2, 73.36, 149.2, 148.3, 171.7, 222.9],
    [10.08, 8.727, 11.92, 18.86, 28.54, 41.54, 59.04, 71.59, 149.2, 148.6, 173.7, 222.4],
    [10.62, 8.755, 12.72, 19.29, 27.28, 45.95, 58.53, 73.06, 148.2, 148.6, 173.0, 223.3],
    [11.97, 9.016, 12.04, 19.39, 28.9, 51.05, 55.84, 73.78, 148.1, 148.7, 173.3, 222.8],
    [14.5, 9.873, 12.2, 19.47, 28.45, 56.03, 59.64, 73.79, 148.6, 148.5, 171.9, 221.4],
    [19.42, 10.22, 10.97, 15.95, 26.18, 69.66, 60.84, 63.38, 102.4, 102.0, 127.8, 175.5],
    [22.59, 13.29, 12.34, 16.57, 24.39, 104.5, 74.55, 65.33, 101.5, 104.2, 131.7, 180.8],
    [33.16, 18.28, 16.16, 17.85, 24.79, 172.5, 108.7, 77.49, 104.5, 105.4, 133.9, 186.8],
    [58.42, 28.6, 23.12, 20.99, 26.94, 301.0, 174.7, 110.9, 112.1, 111.2, 135.6, 191.4],
    [99.67, 51.15, 36.03, 25.17, 29.49, 568.5, 319.6, 192.4, 127.0, 122.0, 142.0, 205.7],
    [160.4, 82.43, 63.92, 40.73, 45.28, 1130.2, 601.3, 345.9, 215.2, 203.5, 224.8, 278.5],
    [311.0, 159.9, 97.88, 65.87, 868.4, 2227.4, 1160.3, 653.7, 335.5, 294.6, 324.5, 345.3],
    [615.0, 315.9, 194.1, 768.1, 1684.7, 4415.7, 2285.5, 1259.5, 516.3, 443.8, 440.3, 464.2],
    [1214.7, 630.7, 387.6, 1575.2, 1778.4, 8727.2, 4506.6, 2465.1, 857.9, 747.0, 695.7, 686.7],
    [2454.8, 1275.9, 800.9, 2392.5, 2551.1,
     17454.5, 8987.8, 4704.0, 1601.7, 1357.0, 1291.0, 1086.7],
    [4821.3, 2472.3, 1447.9, 1340.2, 1952.5, 34429.8, 17475.8, 9067.4, 2806.7, 2315.8, 1986.0, 0.0],
];

#[rustfmt::skip]
const MINIMUM_100: [[f64; 12]; 16] = [
    [9.08, 5.175, 9.034, 15.56, 17.55, 39.43, 52.99, 67.65, 143.2, 141.9, 165.9, 214.0],
    [9.783, 7.7, 7.547, 14.35, 17.49, 40.35, 56.81, 68.24, 143.5, 144.1, 166.8, 213.5],
    [6.756, 6.789, 9.208, 16.04, 17.53, 42.63, 53.83, 67.65, 143.8, 143.4, 166.4, 214.0],
    [8.508, 6.424, 9.399, 15.34, 17.37, 47.6, 51.49, 67.45, 143.7, 142.0, 164.1, 211.1],
    [11.0, 7.447, 9.12, 15.48, 17.42, 54.97, 56.18, 69.58, 143.1, 144.6, 166.0, 212.5],
    [14.06, 7.9, 6.843, 14.5, 16.34, 68.9, 57.45, 59.04, 98.91, 95.9, 119.4, 168.1],
    [17.69, 10.75, 8.902, 14.77, 16.55, 101.1, 67.01, 58.72, 95.86, 98.1, 122.6, 169.6],
    [31.9, 16.01, 11.24, 16.09, 16.57, 166.4, 100.6, 72.86, 98.52, 100.8, 129.0, 176.8],
    [51.86, 26.58, 16.41, 13.62, 19.37, 297.2, 166.2, 104.7, 106.3, 105.9, 127.5, 181.3],
    [97.34, 48.8, 27.5, 18.85, 18.24, 563.5, 302.1, 176.6, 119.1, 118.1, 135.5, 194.9],
    [158.3, 79.76, 49.83, 29.91, 29.4, 1123.3, 589.5, 323.6, 207.7, 191.2, 212.1, 264.8],
    [305.9, 155.1, 82.87, 56.07, 49.93, 2220.6, 1150.6, 620.8, 314.4, 277.4, 304.0, 331.8],
    [610.9, 308.4, 163.3, 90.45, 87.37, 4410.1, 2253.3, 1196.4, 493.9, 424.3, 412.5, 444.2],
    [1209.8, 612.2, 320.3, 164.0, 162.6, 8716.7, 4441.1, 2369.0, 840.1, 710.2, 671.4, 637.4],
    [2356.8, 1225.8, 641.2, 351.7, 287.0, 17090.8, 8783.7, 4589.2, 1557.4, 1314.8, 1170.4, 986.0],
    [4745.4, 2404.6, 1248.2, 577.6, 496.3,
     34156.8, 17143.6, 8806.5, 2751.4, 2231.7, 1937.7, 1461.6],
];

#[rustfmt::skip]
const MAXIMUM_100: [[f64; 12]; 16] = [
    [15.01, 13.21, 13.57, 56.47, 87.48, 42.85, 59.0, 78.84, 155.8, 153.3, 181.3, 238.6],
    [15.91, 11.01, 13.16, 37.53, 67.24, 43.07, 62.15, 78.52, 159.3, 154.4, 182.3, 241.0],
    [13.46, 10.97, 23.08, 37.76, 66.68, 48.51, 63.88, 79.22, 154.2, 156.1, 186.2, 237.8],
    [13.55, 16.87, 15.11, 48.09, 76.26, 52.99, 61.59, 79.92, 154.1, 156.0, 187.5, 238.1],
    [21.37, 19.48, 18.19, 39.42, 76.45, 61.72, 66.84, 79.07, 156.3, 154.2, 180.2, 243.5],
    [20.02, 21.67, 24.83, 26.54, 86.29, 70.47, 65.65, 68.67, 109.4, 109.4, 139.5, 188.7],
    [26.17, 23.25, 20.11, 32.85, 60.15, 116.1, 82.49, 75.53, 111.2, 112.1, 144.1, 196.1],
    [42.2, 39.08, 22.6, 37.91, 66.47, 196.7, 118.8, 88.71, 109.2, 110.6, 142.7, 201.4],
    [59.01, 32.94, 34.04, 31.19, 77.73, 306.1, 180.7, 120.2, 118.1, 119.0, 144.4, 204.6],
    [107.2, 56.71, 51.87, 31.32, 74.56, 597.2, 353.5, 198.1, 133.2, 130.4, 159.1, 239.6],
    [190.3, 95.57, 90.55, 51.85, 83.19, 1135.0, 683.7, 370.7, 224.7, 210.7, 262.5, 342.3],
    [355.0, 185.8, 145.0, 90.91, 14055.0, 2230.9, 1322.6, 703.2, 349.2, 319.7, 403.6, 421.1],
    [642.2, 534.2, 281.0, 14089.7, 14137.7, 4431.0, 2599.0, 1357.7, 568.0, 514.9, 526.9, 638.0],
    [1237.4, 1035.7, 580.6, 11525.4, 11932.4, 8765.5, 5107.1, 2697.2, 1005.2, 904.9, 968.6, 1069.4],
    [5409.2, 2368.6, 6559.2, 12033.9, 12116.7,
     17497.9, 10141.1, 5265.0, 1922.2, 1742.5, 1718.3, 1719.5],
    [5831.4, 3390.8, 7155.0, 6818.5, 12054.5,
     34511.8, 19582.7, 10009.1, 3257.4, 2934.4, 3048.2, 3008.3],
];

#[cfg(test)]
mod tests {
    use super::*;

    fn index(columns: &[Column], member: &str, threads: f64) -> usize {
        let found = columns
            .iter()
            .position(|column| column.member == member && column.threads as f64 == threads);
        found.expect("a column of the table")
    }

    #[test]
    fn table_4_follows_from_the_appendix() {
        for (size, best) in BEST.iter().enumerate() {
            for (place, (threads, average)) in best.iter().enumerate() {
                let member = [XEON, PHI][place % 2];
                let (columns, averages, minima) = match place / 2 {
                    0 => (&COLUMNS_10[..], &AVERAGE_10[size][..], &MINIMUM_10[size][..]),
                    _ => (&COLUMNS_100[..], &AVERAGE_100[size][..], &MINIMUM_100[size][..]),
                };
                let at = index(columns, member, *threads);
                // With outliers the average of all runs is larger, or could not be read.
                let all = averages[at];
                assert!(all == 0.0 || *average <= all * 1.001, "{size} {place}: {all}");
                assert!(minima[at] <= *average, "{size} {place}");
            }
        }
    }

    #[test]
    fn averages_lie_between_minima_and_maxima() {
        let tables = [
            AVERAGE_10.map(Vec::from).into_iter().chain(AVERAGE_100.map(Vec::from)),
            MINIMUM_10.map(Vec::from).into_iter().chain(MINIMUM_100.map(Vec::from)),
            MAXIMUM_10.map(Vec::from).into_iter().chain(MAXIMUM_100.map(Vec::from)),
        ];
        let [averages, minima, maxima] = tables.map(Iterator::flatten);
        let mut cells = 0;
        for (average, (least, most)) in averages.zip(minima.zip(maxima)) {
            let known = average > 0.0 && most > 0.0;
            assert!(!known || (least <= average && average <= most), "{least} {average} {most}");
            cells += usize::from(known);
        }
        assert_eq!(cells, 16 * (8 + 12) - 2, "two cells were not readable");
    }

    #[test]
    fn only_sizes_that_are_measured_are_added() {
        let mut results = Results::new("seal", []);
        add(&[128, 4 << 20], &mut results);
        assert!(results.rows.iter().all(|row| row.published.is_some()));
        let best = results.rows.iter().filter(|row| row.metric == BEST_THREADS).count();
        assert_eq!(best, 2 * 4);
        let of_cells = results.rows.iter().filter(|row| row.metric == OUTLIERS_OF_CELL);
        // Table 2: 2 and 6; table 3: 1, 1, 12 and 23, and 6, 1 and 1 on the Phi.
        assert_eq!(of_cells.map(|row| row.figure.median).sum::<f64>(), 53.0);
        add(&[100], &mut Results::new("seal", []));
    }
}
