//! A device in use: its memory, its kernels, its queue.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ash::vk;

use crate::driver::{DeviceKind, Driver, Physical};
use crate::error::Asked;
use crate::{DeviceError, OpenError, cache, self_test, shaders, soft_fma};

/// Bytes of push constants that every driver has.
pub(crate) const PUSH_BYTES: u32 = 128;
/// Longest that a batch of work may take before the device counts as lost, in nanoseconds.
const PATIENCE: u64 = 600 * 1_000_000_000;

/// A device in use. Cheap to clone; clones share it.
#[derive(Clone)]
pub struct Gpu {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) device: ash::Device,
    pub(crate) physical: Physical,
    pub(crate) index: usize,
    /// Work is handed over by one thread at a time.
    queue: Mutex<vk::Queue>,
    layout: vk::PipelineLayout,
    kernels: Mutex<Kernels>,
    /// Whether kernels have to make fused multiply-adds of doubles.
    soft_fma: AtomicBool,
    /// Whether the device's own memory is to be filled as if the host did not see it, for tests on devices where it does.
    hidden: AtomicBool,
    /// Allocations and submissions that succeed before one fails, for tests of faults.
    allocations_left: AtomicU64,
    submissions_left: AtomicU64,
    /// Held so that the instance outlives the device.
    pub(crate) driver: Arc<Driver>,
}

#[derive(Default)]
struct Kernels {
    pipelines: HashMap<(String, Vec<u32>), vk::Pipeline>,
    cache: vk::PipelineCache,
    /// Whether the cache has more than its file.
    grown: bool,
}

/// A kernel, ready to be dispatched on the device that it came from.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    pub(crate) pipeline: vk::Pipeline,
}

impl Gpu {
    /// The device of this number, in the loader's order; or without one the best that there is, software last.
    ///
    /// # Errors
    /// No loader, driver or such device, or a device that lacks something.
    pub fn open(index: Option<usize>) -> Result<Gpu, OpenError> {
        let driver = Driver::open()?;
        let devices = driver.physical_devices()?;
        let n = devices.len();
        let (index, physical) = match index {
            Some(index) => {
                let device = devices.into_iter().nth(index);
                (index, device.ok_or(OpenError::NoSuchDevice { index, n })?)
            }
            None => devices
                .into_iter()
                .enumerate()
                .min_by_key(|(i, d)| (d.lacks().is_some(), d.kind.rank(), *i))
                .ok_or(OpenError::NoDevice)?,
        };
        Gpu::of(driver, index, physical)
    }

    /// Any device, software too.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn open_any() -> Result<Gpu, OpenError> {
        Gpu::open(None)
    }

    pub(crate) fn of(driver: Arc<Driver>, index: usize, physical: Physical) -> Result<Gpu, OpenError> {
        let lacks = |what| OpenError::Lacks { device: physical.name.clone(), what };
        if let Some(what) = physical.lacks() {
            return Err(lacks(what));
        }
        let family = physical.queue_family.unwrap_or_default();
        let queues =
            [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&[1.0])];
        let mut extensions = Vec::new();
        let mut address =
            vk::PhysicalDeviceBufferDeviceAddressFeatures::default().buffer_device_address(true);
        let mut dot =
            vk::PhysicalDeviceShaderIntegerDotProductFeatures::default().shader_integer_dot_product(true);
        let mut info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).push_next(&mut address);
        if physical.integer_dot {
            extensions.push(ash::khr::shader_integer_dot_product::NAME.as_ptr());
            info = info.push_next(&mut dot);
        }
        let doubles = vk::PhysicalDeviceFeatures::default().shader_float64(physical.doubles);
        info = info.enabled_extension_names(&extensions).enabled_features(&doubles);
        let failed = |what| move |result| OpenError::Driver { what, result };
        // SAFETY: the physical device is the driver's, and all structures live until the call returns.
        let device = unsafe { driver.instance.create_device(physical.handle, &info, None) }
            .map_err(failed("creating the device"))?;
        let push =
            [vk::PushConstantRange::default().stage_flags(vk::ShaderStageFlags::COMPUTE).size(PUSH_BYTES)];
        let layout = vk::PipelineLayoutCreateInfo::default().push_constant_ranges(&push);
        // SAFETY: the device is alive; a failure leaves it to be destroyed.
        let layout = match unsafe { device.create_pipeline_layout(&layout, None) } {
            Ok(layout) => layout,
            Err(result) => {
                // SAFETY: nothing else was made of it.
                unsafe { device.destroy_device(None) };
                return Err(OpenError::Driver { what: "creating the pipeline layout", result });
            }
        };
        // SAFETY: the family has a queue, which was asked for.
        let queue = unsafe { device.get_device_queue(family, 0) };
        let cache = cache::load(&device, &physical);
        let gpu = Gpu {
            inner: Arc::new(Inner {
                device,
                physical,
                index,
                queue: Mutex::new(queue),
                layout,
                kernels: Mutex::new(Kernels { cache, ..Kernels::default() }),
                soft_fma: AtomicBool::new(false),
                hidden: AtomicBool::new(false),
                allocations_left: AtomicU64::new(u64::MAX),
                submissions_left: AtomicU64::new(u64::MAX),
                driver,
            }),
        };
        gpu.find_fma()?;
        Ok(gpu)
    }

    /// Finds out whether the driver's multiply-add is fused, and sees to it where it is not.
    fn find_fma(&self) -> Result<(), OpenError> {
        let physical = &self.inner.physical;
        let fail = |what: String| OpenError::SelfTest {
            device: physical.name.clone(),
            driver: physical.driver.clone(),
            what,
        };
        let fused = || self_test::fused(self).map_err(|e| fail(format!("multiply-add: {e}")));
        if fused()? {
            return Ok(());
        }
        if !physical.doubles {
            let what = "a fused multiply-add, or doubles to make one of (shaderFloat64)".to_owned();
            return Err(OpenError::Lacks { device: physical.name.clone(), what });
        }
        self.inner.soft_fma.store(true, Ordering::Relaxed);
        self.inner.forget_kernels();
        if fused()? { Ok(()) } else { Err(fail("a multiply-add of doubles gives other bits".to_owned())) }
    }

    /// Whether the driver's multiply-add is fused; if not, kernels compute it in doubles.
    pub fn has_fused_multiply_add(&self) -> bool {
        !self.inner.soft_fma.load(Ordering::Relaxed)
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.inner.physical.name
    }

    /// What the device is built as.
    pub fn kind(&self) -> DeviceKind {
        self.inner.physical.kind
    }

    /// Whether kernels that multiply four signed bytes at once run here.
    pub fn has_integer_dot(&self) -> bool {
        self.inner.physical.integer_dot
    }

    /// Lets the next `n` allocations succeed and then one fail, for tests of faults.
    pub fn fail_allocation_after(&self, n: u64) {
        self.inner.allocations_left.store(n, Ordering::Relaxed);
    }

    /// Lets the next `n` pieces of work be handed over and then the device be lost, for tests of faults.
    pub fn lose_after(&self, n: u64) {
        self.inner.submissions_left.store(n, Ordering::Relaxed);
    }

    /// Fills and reads the device's own memory through staging from now on, as on a card whose memory the host does not see,
    /// for tests.
    pub fn hide_memory(&self) {
        self.inner.hidden.store(true, Ordering::Relaxed);
    }

    /// Whether the host may use a view of the device's own memory.
    pub(crate) fn sees_memory(&self) -> bool {
        !self.inner.hidden.load(Ordering::Relaxed)
    }

    /// A kernel by its name in `shaders/kernels.txt`, with the values of its specialisation constants from number 0 on.
    ///
    /// # Errors
    /// A driver that does not take it.
    ///
    /// # Panics
    /// If there is no kernel of that name.
    pub fn kernel(&self, name: &str, constants: &[u32]) -> Result<Kernel, DeviceError> {
        self.made(name, constants, || shaders::module(name).unwrap_or_else(|| panic!("no kernel {name}")))
    }

    /// A kernel that is none of the backend's own, from its SPIR-V, under a name of its own.
    ///
    /// # Errors
    /// A driver that does not take it.
    pub fn kernel_of(&self, name: &str, module: &[u8], constants: &[u32]) -> Result<Kernel, DeviceError> {
        self.made(name, constants, || shaders::words(module))
    }

    /// A kernel, made if it is not there yet.
    fn made(
        &self,
        name: &str,
        constants: &[u32],
        module: impl FnOnce() -> Vec<u32>,
    ) -> Result<Kernel, DeviceError> {
        let mut kernels = self.inner.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name.to_owned(), constants.to_vec());
        if let Some(&pipeline) = kernels.pipelines.get(&key) {
            return Ok(Kernel { pipeline });
        }
        let pipeline = self.compile(&module(), constants, kernels.cache)?;
        kernels.pipelines.insert(key, pipeline);
        kernels.grown = true;
        Ok(Kernel { pipeline })
    }

    /// A kernel from its module.
    fn compile(
        &self,
        module: &[u32],
        constants: &[u32],
        cache: vk::PipelineCache,
    ) -> Result<vk::Pipeline, DeviceError> {
        let device = &self.inner.device;
        let mut code = soft_fma::keep_whole(&shaders::with_controls(module, self.inner.physical.float));
        if !self.has_fused_multiply_add() {
            code = soft_fma::rewrite(&code);
        }
        let info = vk::ShaderModuleCreateInfo::default().code(&code);
        // SAFETY: the code is a valid module (`tools/vulkan/shaders.sh` has it validated), and lives until the call returns.
        let module = unsafe { device.create_shader_module(&info, None) }.asked("loading a kernel")?;
        let entries: Vec<_> = (0..constants.len())
            .map(|i| vk::SpecializationMapEntry { constant_id: i as u32, offset: 4 * i as u32, size: 4 })
            .collect();
        let special =
            vk::SpecializationInfo::default().map_entries(&entries).data(bytemuck::cast_slice(constants));
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(c"main")
            .specialization_info(&special);
        let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(self.inner.layout)];
        // SAFETY: module, layout and cache are this device's, and the structures live until the call returns.
        let made = unsafe { device.create_compute_pipelines(cache, &info, None) };
        // SAFETY: a pipeline does not need its module once it is made.
        unsafe { device.destroy_shader_module(module, None) };
        let pipeline = made.map_err(|(_, result)| result).asked("compiling a kernel")?;
        Ok(pipeline[0])
    }

    /// Runs one kernel and waits for it.
    ///
    /// # Errors
    /// A lost device, or one out of memory.
    pub fn run_once(
        &self,
        kernel: &Kernel,
        push: &impl bytemuck::Pod,
        groups: [u32; 3],
    ) -> Result<(), DeviceError> {
        let mut commands = Commands::new(self)?;
        commands.begin()?;
        commands.dispatch(*kernel, bytemuck::bytes_of(push), groups);
        commands.end()?;
        commands.run()
    }

    /// Whether one more allocation is to succeed.
    pub(crate) fn may_allocate(&self) -> bool {
        take(&self.inner.allocations_left)
    }
}

/// Takes one of what is left; false for the one behind the last, once.
fn take(left: &AtomicU64) -> bool {
    let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| match n {
        u64::MAX => None,
        0 => Some(u64::MAX),
        n => Some(n - 1),
    });
    taken != Ok(0)
}

impl Inner {
    /// Drops all pipelines, which nobody uses.
    fn forget_kernels(&self) {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, pipeline) in kernels.pipelines.drain() {
            // SAFETY: the pipeline is the device's, and what used it has ended.
            unsafe { self.device.destroy_pipeline(pipeline, None) };
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: buffers and commands hold the device, so nothing else is left to wait for.
        let _ = unsafe { self.device.device_wait_idle() };
        self.forget_kernels();
        let kernels = self.kernels.get_mut().unwrap_or_else(PoisonError::into_inner);
        if kernels.grown {
            cache::store(&self.device, &self.physical, kernels.cache);
        }
        // SAFETY: buffers and commands hold the device, so none is left, and nothing runs: whoever handed work over has waited
        // for it.
        unsafe {
            self.device.destroy_pipeline_cache(kernels.cache, None);
            self.device.destroy_pipeline_layout(self.layout, None);
            self.device.destroy_device(None);
        }
    }
}

/// Work that is recorded once and can be run any number of times.
pub(crate) struct Commands {
    gpu: Gpu,
    pool: vk::CommandPool,
    buffer: vk::CommandBuffer,
    fence: vk::Fence,
    bound: vk::Pipeline,
    /// Whether it was handed over and nobody has waited for it.
    running: bool,
}

impl Commands {
    pub(crate) fn new(gpu: &Gpu) -> Result<Commands, DeviceError> {
        let device = &gpu.inner.device;
        let family = gpu.inner.physical.queue_family.unwrap_or_default();
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(family);
        // SAFETY: the device is alive; what is made is destroyed with `commands`, also where a later call fails.
        let pool = unsafe { device.create_command_pool(&info, None) }.asked("creating a command pool")?;
        let mut commands = Commands {
            gpu: gpu.clone(),
            pool,
            buffer: vk::CommandBuffer::null(),
            fence: vk::Fence::null(),
            bound: vk::Pipeline::null(),
            running: false,
        };
        let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
        // SAFETY: as above.
        commands.buffer = unsafe { device.allocate_command_buffers(&info) }.asked("creating commands")?[0];
        // SAFETY: as above.
        commands.fence = unsafe { device.create_fence(&vk::FenceCreateInfo::default(), None) }
            .asked("creating a fence")?;
        Ok(commands)
    }

    pub(crate) fn begin(&mut self) -> Result<(), DeviceError> {
        // SAFETY: the buffer is not running: `run` waits.
        unsafe {
            self.gpu.inner.device.begin_command_buffer(self.buffer, &vk::CommandBufferBeginInfo::default())
        }
        .asked("recording")
    }

    /// Adds a kernel, which does not wait for those before it.
    pub(crate) fn dispatch(&mut self, kernel: Kernel, push: &[u8], groups: [u32; 3]) {
        let inner = &self.gpu.inner;
        debug_assert!(push.len() <= PUSH_BYTES as usize);
        debug_assert!(groups.iter().zip(inner.physical.max_groups).all(|(n, most)| *n <= most));
        // SAFETY: the buffer is being recorded, and the pipeline has this layout.
        unsafe {
            if self.bound != kernel.pipeline {
                let point = vk::PipelineBindPoint::COMPUTE;
                inner.device.cmd_bind_pipeline(self.buffer, point, kernel.pipeline);
                self.bound = kernel.pipeline;
            }
            let stage = vk::ShaderStageFlags::COMPUTE;
            inner.device.cmd_push_constants(self.buffer, inner.layout, stage, 0, push);
            inner.device.cmd_dispatch(self.buffer, groups[0], groups[1], groups[2]);
        }
    }

    /// Makes what was written so far visible to what follows, copies and the host included.
    pub(crate) fn barrier(&mut self) {
        let access = vk::AccessFlags::SHADER_READ
            | vk::AccessFlags::SHADER_WRITE
            | vk::AccessFlags::TRANSFER_READ
            | vk::AccessFlags::TRANSFER_WRITE;
        let barrier = [vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::TRANSFER_WRITE)
            .dst_access_mask(access | vk::AccessFlags::HOST_READ)];
        let work = vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER;
        // SAFETY: the buffer is being recorded.
        unsafe {
            self.gpu.inner.device.cmd_pipeline_barrier(
                self.buffer,
                work,
                work | vk::PipelineStageFlags::HOST,
                vk::DependencyFlags::empty(),
                &barrier,
                &[],
                &[],
            );
        }
    }

    /// Adds a copy of bytes.
    pub(crate) fn copy(&mut self, from: (vk::Buffer, u64), to: (vk::Buffer, u64), bytes: u64) {
        let region = [vk::BufferCopy { src_offset: from.1, dst_offset: to.1, size: bytes }];
        // SAFETY: the buffer is being recorded, and the ranges lie in the buffers.
        unsafe { self.gpu.inner.device.cmd_copy_buffer(self.buffer, from.0, to.0, &region) };
    }

    /// Adds zeros all over a buffer.
    pub(crate) fn fill(&mut self, buffer: vk::Buffer) {
        // SAFETY: the buffer is being recorded, and the whole of the other is filled.
        unsafe { self.gpu.inner.device.cmd_fill_buffer(self.buffer, buffer, 0, vk::WHOLE_SIZE, 0) };
    }

    pub(crate) fn end(&mut self) -> Result<(), DeviceError> {
        self.barrier();
        // SAFETY: the buffer is being recorded.
        unsafe { self.gpu.inner.device.end_command_buffer(self.buffer) }.asked("recording")
    }

    /// Runs what was recorded and waits for it.
    pub(crate) fn run(&mut self) -> Result<(), DeviceError> {
        self.start()?;
        self.wait()
    }

    /// Hands what was recorded over. Has to be waited for.
    pub(crate) fn start(&mut self) -> Result<(), DeviceError> {
        let inner = &self.gpu.inner;
        if !take(&inner.submissions_left) {
            return Err(vk::Result::ERROR_DEVICE_LOST).asked("handing work over");
        }
        let buffers = [self.buffer];
        let info = [vk::SubmitInfo::default().command_buffers(&buffers)];
        let queue = inner.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the buffer is recorded and not running, and the queue is this thread's while it is locked.
        unsafe { inner.device.queue_submit(*queue, &info, self.fence) }.asked("handing work over")?;
        self.running = true;
        Ok(())
    }

    /// Waits for what was started.
    pub(crate) fn wait(&mut self) -> Result<(), DeviceError> {
        let (device, fences) = (&self.gpu.inner.device, [self.fence]);
        // SAFETY: the fence is the device's, and was handed over with the work.
        unsafe {
            device.wait_for_fences(&fences, true, PATIENCE).asked("waiting for the device")?;
            self.running = false;
            device.reset_fences(&fences).asked("resetting a fence")
        }
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        let device = &self.gpu.inner.device;
        // SAFETY: work that was started and failed to be waited for has the same patience once more here, or the device is lost.
        unsafe {
            if self.running {
                let _ = device.wait_for_fences(&[self.fence], true, PATIENCE);
            }
            device.destroy_fence(self.fence, None);
            device.destroy_command_pool(self.pool, None);
        }
    }
}
