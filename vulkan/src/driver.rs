//! The Vulkan loader, opened when first asked for, and the devices that its drivers offer.

use std::ffi::CStr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ash::vk;

use crate::OpenError;
use crate::shaders::FloatControls;

/// The oldest version whose devices are used: it has buffer addresses and SPIR-V 1.5.
const API: u32 = vk::API_VERSION_1_2;

/// A loader with an instance. Closed when the last device goes.
pub(crate) struct Driver {
    pub(crate) instance: ash::Instance,
    /// Keeps the library open; the instance's functions lie in it.
    _entry: ash::Entry,
}

impl Driver {
    /// The process's driver, opened if it is not.
    pub(crate) fn open() -> Result<Arc<Driver>, OpenError> {
        static OPEN: Mutex<Weak<Driver>> = Mutex::new(Weak::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = open.upgrade() {
            return Ok(driver);
        }
        let driver = Arc::new(Driver::load()?);
        *open = Arc::downgrade(&driver);
        Ok(driver)
    }

    fn load() -> Result<Driver, OpenError> {
        // SAFETY: loading a library runs its initialisers; the Vulkan loader's do nothing that could harm this process.
        let entry = unsafe { ash::Entry::load() }.map_err(|e| OpenError::Loader(e.to_string()))?;
        let app = vk::ApplicationInfo::default().api_version(API).application_name(c"llamay");
        let info = vk::InstanceCreateInfo::default().application_info(&app);
        // SAFETY: the structures live until the call returns.
        let instance = unsafe { entry.create_instance(&info, None) }
            .map_err(|result| OpenError::Driver { what: "creating an instance", result })?;
        Ok(Driver { instance, _entry: entry })
    }

    /// All devices of all drivers, in the loader's order.
    pub(crate) fn physical_devices(&self) -> Result<Vec<Physical>, OpenError> {
        // SAFETY: the instance is alive.
        let devices = unsafe { self.instance.enumerate_physical_devices() }
            .map_err(|result| OpenError::Driver { what: "listing devices", result })?;
        Ok(devices.into_iter().map(|d| Physical::of(&self.instance, d)).collect())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // SAFETY: every device holds the driver, so none is left.
        unsafe { self.instance.destroy_instance(None) };
    }
}

/// What a device is built as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A card with memory of its own.
    Discrete,
    /// A GPU that shares the CPU's memory.
    Integrated,
    /// Part of a GPU, handed to a virtual machine.
    Virtual,
    /// Software that runs on the CPU.
    Cpu,
    /// Something else.
    Other,
}

impl DeviceKind {
    fn of(kind: vk::PhysicalDeviceType) -> DeviceKind {
        match kind {
            vk::PhysicalDeviceType::DISCRETE_GPU => DeviceKind::Discrete,
            vk::PhysicalDeviceType::INTEGRATED_GPU => DeviceKind::Integrated,
            vk::PhysicalDeviceType::VIRTUAL_GPU => DeviceKind::Virtual,
            vk::PhysicalDeviceType::CPU => DeviceKind::Cpu,
            _ => DeviceKind::Other,
        }
    }

    /// The name that listings show.
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Discrete => "discrete",
            DeviceKind::Integrated => "integrated",
            DeviceKind::Virtual => "virtual",
            DeviceKind::Cpu => "software",
            DeviceKind::Other => "other",
        }
    }

    /// The less, the sooner a device is taken where nobody named one.
    pub(crate) fn rank(self) -> u32 {
        match self {
            DeviceKind::Discrete => 0,
            DeviceKind::Integrated => 1,
            DeviceKind::Virtual => 2,
            DeviceKind::Other => 3,
            DeviceKind::Cpu => 4,
        }
    }
}

/// A device that a driver offers, and what it says of itself.
#[derive(Clone)]
pub(crate) struct Physical {
    pub(crate) handle: vk::PhysicalDevice,
    pub(crate) name: String,
    pub(crate) kind: DeviceKind,
    /// The driver's name and version.
    pub(crate) driver: String,
    /// Vulkan's version.
    pub(crate) api: u32,
    pub(crate) subgroup: u32,
    /// Names driver and device to the cache of pipelines.
    pub(crate) cache_key: [u8; vk::UUID_SIZE],
    pub(crate) memory: vk::PhysicalDeviceMemoryProperties,
    /// Bytes of the largest allocation.
    pub(crate) max_allocation: u64,
    /// Whether a driver tells how much memory is left.
    pub(crate) has_budget: bool,
    pub(crate) buffer_address: bool,
    /// Doubles, with which a fused multiply-add can be made where the driver's is not fused.
    pub(crate) doubles: bool,
    pub(crate) integer_dot: bool,
    /// Whether the product of four signed bytes is an instruction of the device.
    pub(crate) dot_accelerated: bool,
    pub(crate) max_groups: [u32; 3],
    pub(crate) float: FloatControls,
    /// A family of queues that compute.
    pub(crate) queue_family: Option<u32>,
}

impl Physical {
    fn of(instance: &ash::Instance, handle: vk::PhysicalDevice) -> Physical {
        // SAFETY: the handle is the instance's, in all calls here; structures that are chained live until each returns.
        let plain = unsafe { instance.get_physical_device_properties(handle) };
        // SAFETY: as above.
        let extensions =
            unsafe { instance.enumerate_device_extension_properties(handle) }.unwrap_or_default();
        let has = |name: &CStr| extensions.iter().any(|e| e.extension_name_as_c_str() == Ok(name));
        // SAFETY: as above.
        let memory = unsafe { instance.get_physical_device_memory_properties(handle) };
        let name = plain.device_name_as_c_str().unwrap_or_default().to_string_lossy().into_owned();
        let mut physical = Physical {
            handle,
            name,
            kind: DeviceKind::of(plain.device_type),
            driver: String::new(),
            api: plain.api_version,
            subgroup: 0,
            cache_key: plain.pipeline_cache_uuid,
            memory,
            max_allocation: 1 << 30,
            has_budget: has(ash::ext::memory_budget::NAME),
            buffer_address: false,
            doubles: false,
            integer_dot: false,
            dot_accelerated: false,
            max_groups: plain.limits.max_compute_work_group_count,
            float: FloatControls::default(),
            queue_family: None,
        };
        // SAFETY: as above.
        let families = unsafe { instance.get_physical_device_queue_family_properties(handle) };
        let computes = |f: &vk::QueueFamilyProperties| f.queue_flags.contains(vk::QueueFlags::COMPUTE);
        physical.queue_family = families.iter().position(computes).map(|i| i as u32);
        if plain.api_version < API {
            return physical;
        }
        let has_dot = has(ash::khr::shader_integer_dot_product::NAME);
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut subgroup = vk::PhysicalDeviceSubgroupProperties::default();
        let mut float = vk::PhysicalDeviceFloatControlsProperties::default();
        let mut maintenance = vk::PhysicalDeviceMaintenance3Properties::default();
        let mut dot = vk::PhysicalDeviceShaderIntegerDotProductProperties::default();
        let mut all = vk::PhysicalDeviceProperties2::default()
            .push_next(&mut driver)
            .push_next(&mut subgroup)
            .push_next(&mut float)
            .push_next(&mut maintenance);
        if has_dot {
            all = all.push_next(&mut dot);
        }
        // SAFETY: as above.
        unsafe { instance.get_physical_device_properties2(handle, &mut all) };
        let mut address = vk::PhysicalDeviceBufferDeviceAddressFeatures::default();
        let mut dots = vk::PhysicalDeviceShaderIntegerDotProductFeatures::default();
        let mut features = vk::PhysicalDeviceFeatures2::default().push_next(&mut address);
        if has_dot {
            features = features.push_next(&mut dots);
        }
        // SAFETY: as above.
        unsafe { instance.get_physical_device_features2(handle, &mut features) };
        let plain_features = features.features;
        let text = |s: Result<&CStr, _>| s.map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let named = text(driver.driver_name_as_c_str().map_err(drop));
        let version = text(driver.driver_info_as_c_str().map_err(drop));
        physical.driver = format!("{named} {version}").trim().to_owned();
        physical.subgroup = subgroup.subgroup_size;
        physical.max_allocation = maintenance.max_memory_allocation_size;
        physical.buffer_address = address.buffer_device_address == vk::TRUE;
        physical.doubles = plain_features.shader_float64 == vk::TRUE;
        physical.integer_dot = has_dot && dots.shader_integer_dot_product == vk::TRUE;
        physical.dot_accelerated =
            physical.integer_dot && dot.integer_dot_product4x8_bit_packed_signed_accelerated == vk::TRUE;
        physical.float = FloatControls {
            denorm_preserve: float.shader_denorm_preserve_float32 == vk::TRUE,
            round_to_even: float.shader_rounding_mode_rte_float32 == vk::TRUE,
            keep_special: float.shader_signed_zero_inf_nan_preserve_float32 == vk::TRUE,
        };
        physical
    }

    /// What the kernels need and the device has not, if there is such a thing.
    pub(crate) fn lacks(&self) -> Option<String> {
        if self.api < API {
            let (major, minor) = (vk::api_version_major(self.api), vk::api_version_minor(self.api));
            return Some(format!("Vulkan 1.2 (it has {major}.{minor})"));
        }
        if !self.buffer_address {
            return Some("buffer addresses (bufferDeviceAddress)".to_owned());
        }
        self.queue_family.is_none().then(|| "a queue that computes".to_owned())
    }

    /// Bytes of the device's own memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.own_heaps().map(|(_, heap)| heap.size).sum()
    }

    /// Bytes that the driver says can still be allocated; `None` where it says nothing.
    pub(crate) fn budget(&self, instance: &ash::Instance) -> Option<u64> {
        if !self.has_budget {
            return None;
        }
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut all = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: the handle is the instance's, and the structures live until the call returns.
        unsafe { instance.get_physical_device_memory_properties2(self.handle, &mut all) };
        let left = |i: usize| budget.heap_budget[i].saturating_sub(budget.heap_usage[i]);
        Some(self.own_heaps().map(|(i, _)| left(i)).sum())
    }

    fn own_heaps(&self) -> impl Iterator<Item = (usize, &vk::MemoryHeap)> {
        let heaps = self.memory.memory_heaps_as_slice().iter().enumerate();
        heaps.filter(|(_, h)| h.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL))
    }
}
