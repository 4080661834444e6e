#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bma_fuzz_targets::executor_inputs(data));
