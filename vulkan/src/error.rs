//! What goes wrong between a program and a Vulkan driver.

use ash::vk;
use llamay_plan::ExecError;

/// Why a device cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// There is no Vulkan loader.
    #[error("no Vulkan loader: {0}")]
    Loader(String),
    /// The loader or a driver failed.
    #[error("{what} failed: {result}")]
    Driver {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        result: vk::Result,
    },
    /// No driver offers a device.
    #[error("no driver offers a device")]
    NoDevice,
    /// There are devices, and none is a GPU.
    #[error("no GPU: the only devices are software ({0}), which are used when asked for by name")]
    OnlySoftware(String),
    /// No device has this number.
    #[error("there is no device {index}: {n} found")]
    NoSuchDevice {
        /// The number.
        index: usize,
        /// Devices that there are.
        n: usize,
    },
    /// The device lacks what the kernels need.
    #[error("{device} lacks {what}")]
    Lacks {
        /// The device's name.
        device: String,
        /// What it lacks.
        what: String,
    },
    /// The device computed something else than it should.
    #[error("{device} ({driver}) fails the self-test: {what}")]
    SelfTest {
        /// The device's name.
        device: String,
        /// The driver and its version.
        driver: String,
        /// The kernel or operation, and how it differs.
        what: String,
    },
}

/// What a device in use answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// Memory that could not be had.
    #[error("out of device memory: {what} needs {bytes} bytes")]
    Memory {
        /// What was to be allocated.
        what: &'static str,
        /// Its size.
        bytes: u64,
    },
    /// The driver's answer to anything else; the device is of no use behind it.
    #[error("{what} failed: {result}")]
    Driver {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        result: vk::Result,
    },
}

/// Names the driver's answer by what was asked.
pub(crate) trait Asked<T> {
    fn asked(self, what: &'static str) -> Result<T, DeviceError>;
}

impl<T> Asked<T> for Result<T, vk::Result> {
    fn asked(self, what: &'static str) -> Result<T, DeviceError> {
        self.map_err(|result| DeviceError::Driver { what, result })
    }
}

impl DeviceError {
    /// The same for whoever runs the plan.
    pub(crate) fn exec(self, device: &str) -> ExecError {
        match self {
            DeviceError::Memory { what, bytes } => ExecError::OutOfMemory { what, bytes },
            DeviceError::Driver { .. } => {
                ExecError::DeviceLost { device: device.to_owned(), why: self.to_string() }
            }
        }
    }
}
