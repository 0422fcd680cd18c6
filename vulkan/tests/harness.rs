//! Buffers, copies and faults of a device.

mod common;

use common::device;
use llamay_vulkan::DeviceError;

#[test]
fn values_come_back_from_the_device() {
    let Some(gpu) = device() else { return };
    let values: Vec<u32> = (0..1000).map(|i| i * 0x0001_0101).collect();
    let buffer = gpu.upload(&values).unwrap();
    assert_ne!(buffer.address(), 0);
    assert_eq!(gpu.read::<u32>(&buffer).unwrap()[..1000], values);
    assert!(gpu.read::<u32>(&gpu.zeroed(4000).unwrap()).unwrap().iter().all(|v| *v == 0));
}

#[test]
fn memory_that_the_host_does_not_see_is_filled_and_read_through_staging() {
    let Some(gpu) = device() else { return };
    gpu.hide_memory();
    // More than staging holds at once.
    let values: Vec<u32> = (0..(40 << 20) / 4).map(|i| i ^ 0x5555).collect();
    let buffer = gpu.upload(&values).unwrap();
    assert!(gpu.read::<u32>(&buffer).unwrap() == values);
}

#[test]
fn an_allocation_that_fails_is_an_error_and_the_next_one_is_not() {
    let Some(gpu) = device() else { return };
    gpu.fail_allocation_after(1);
    assert!(gpu.upload(&[1u32]).is_ok());
    assert!(matches!(gpu.upload(&[1u32]), Err(DeviceError::Memory { .. })));
    assert!(gpu.upload(&[1u32]).is_ok());
}
