//! Buffers on the device.

use ash::vk;

use crate::{DeviceError, Gpu};

/// Who uses a buffer, and so where it should lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// The device; the host fills it, once.
    Device,
    /// Written by the host for every piece of work.
    ToDevice,
    /// Read by the host.
    FromDevice,
}

/// Memory on the device, reached by its address.
pub struct Buffer {
    gpu: Gpu,
    pub(crate) handle: vk::Buffer,
    memory: vk::DeviceMemory,
    size: u64,
    address: u64,
    /// Where the host sees it, or null.
    mapped: *mut u8,
}

// SAFETY: the mapping is the buffer's alone and lives as long.
unsafe impl Send for Buffer {}
// SAFETY: shared access reads what nobody writes: writing takes the buffer mutably, and the device writes while it is waited
// for.
unsafe impl Sync for Buffer {}

/// Bytes of the buffer through which the host fills memory that it does not see.
const STAGING: u64 = 32 << 20;

impl Gpu {
    /// A buffer of `size` bytes, whatever is in it.
    pub(crate) fn buffer(&self, what: &'static str, size: u64, used: Use) -> Result<Buffer, DeviceError> {
        let device = &self.inner.device;
        let size = size.next_multiple_of(16).max(16);
        let short = DeviceError::Memory { what, bytes: size };
        if size > self.inner.physical.max_allocation || !self.may_allocate() {
            return Err(short);
        }
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        let info = vk::BufferCreateInfo::default().size(size).usage(usage);
        // SAFETY: the device is alive; the buffer is destroyed with `buffer`, also where a later call fails.
        let handle = unsafe { device.create_buffer(&info, None) }.map_err(|_| short)?;
        let mut buffer = Buffer {
            gpu: self.clone(),
            handle,
            memory: vk::DeviceMemory::null(),
            size,
            address: 0,
            mapped: std::ptr::null_mut(),
        };
        // SAFETY: the buffer is the device's.
        let needs = unsafe { device.get_buffer_memory_requirements(handle) };
        let types = self.memory_types(needs.memory_type_bits, used);
        let mut flags = vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
        let host = types.iter().copied().find_map(|(index, host)| {
            let info = vk::MemoryAllocateInfo::default()
                .allocation_size(needs.size)
                .memory_type_index(index)
                .push_next(&mut flags);
            // SAFETY: the type is one of the device's, and the structures live until the call returns.
            buffer.memory = unsafe { device.allocate_memory(&info, None) }.ok()?;
            Some(host)
        });
        let host = host.ok_or(short)? && (used != Use::Device || self.sees_memory());
        // SAFETY: memory and buffer are fresh, and the memory has the size and a type that the buffer needs.
        unsafe { device.bind_buffer_memory(handle, buffer.memory, 0) }.map_err(|_| short)?;
        let info = vk::BufferDeviceAddressInfo::default().buffer(handle);
        // SAFETY: the buffer has memory, and was made to have an address.
        buffer.address = unsafe { device.get_buffer_device_address(&info) };
        if host {
            let whole = vk::WHOLE_SIZE;
            // SAFETY: the memory can be mapped, is not yet, and stays so until it is freed.
            let at = unsafe { device.map_memory(buffer.memory, 0, whole, vk::MemoryMapFlags::empty()) };
            buffer.mapped = at.map_err(|_| short)?.cast();
        }
        Ok(buffer)
    }

    /// Memory types that would do, the best first, and whether the host sees each.
    fn memory_types(&self, allowed: u32, used: Use) -> Vec<(u32, bool)> {
        use vk::MemoryPropertyFlags as Flags;
        let (seen, own) = (Flags::HOST_VISIBLE | Flags::HOST_COHERENT, Flags::DEVICE_LOCAL);
        let wishes: &[Flags] = match used {
            // A card that shows all its memory is filled without a detour.
            Use::Device => &[own | seen, own, seen],
            Use::ToDevice => &[own | seen, seen],
            Use::FromDevice => &[seen | Flags::HOST_CACHED, seen],
        };
        let memory = &self.inner.physical.memory;
        let types = memory.memory_types_as_slice();
        let heap = |t: &vk::MemoryType| memory.memory_heaps[t.heap_index as usize].size;
        let largest = types.iter().filter(|t| t.property_flags.contains(own)).map(heap).max();
        let mut found: Vec<(u32, bool)> = Vec::new();
        for wish in wishes {
            for (i, t) in types.iter().enumerate() {
                // A card that shows the host a window of its memory needs it for other things.
                let window = used == Use::Device && *wish == own | seen && Some(heap(t)) < largest;
                let fits = allowed & 1 << i != 0 && t.property_flags.contains(*wish) && !window;
                if fits && found.iter().all(|f| f.0 != i as u32) {
                    found.push((i as u32, t.property_flags.contains(seen)));
                }
            }
        }
        found
    }

    /// A buffer that holds these values.
    ///
    /// # Errors
    /// Too little memory.
    pub fn upload<T: bytemuck::Pod>(&self, values: &[T]) -> Result<Buffer, DeviceError> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let mut buffer = self.buffer("values", bytes.len() as u64, Use::Device)?;
        buffer.write(0, bytes)?;
        Ok(buffer)
    }

    /// A buffer of zeros that the host can read.
    ///
    /// # Errors
    /// Too little memory.
    pub fn zeroed(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        let mut buffer = self.buffer("values", bytes as u64, Use::FromDevice)?;
        buffer.write(0, &vec![0; buffer.size as usize])?;
        Ok(buffer)
    }

    /// A copy of what is in a buffer.
    ///
    /// # Errors
    /// A lost device.
    pub fn read<T: bytemuck::Pod>(&self, buffer: &Buffer) -> Result<Vec<T>, DeviceError> {
        let mut values = vec![T::zeroed(); buffer.size as usize / size_of::<T>()];
        buffer.read(0, bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }
}

impl Buffer {
    /// The device's address of its first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The host's view of some bytes; `None` where it has none.
    pub(crate) fn mapped(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        assert!(at + len as u64 <= self.size, "{len} bytes at {at} of {}", self.size);
        // SAFETY: within the mapping, which is this buffer's alone; the device does not use it meanwhile, since whoever hands
        // work over waits for it.
        (!self.mapped.is_null())
            .then(|| unsafe { std::slice::from_raw_parts_mut(self.mapped.add(at as usize), len) })
    }

    /// Writes bytes, through staging where the host does not see the memory.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if let Some(to) = self.mapped(at, bytes.len()) {
            to.copy_from_slice(bytes);
            return Ok(());
        }
        let mut stage = self.gpu.buffer("staging", STAGING.min(bytes.len() as u64), Use::ToDevice)?;
        for (i, part) in bytes.chunks(STAGING as usize).enumerate() {
            stage.write(0, part)?;
            self.fill_from(&stage, at + i as u64 * STAGING, part.len() as u64)?;
        }
        Ok(())
    }

    /// Copies the first bytes of another buffer into this one, on the device.
    fn fill_from(&mut self, from: &Buffer, at: u64, len: u64) -> Result<(), DeviceError> {
        copy(&self.gpu, (from.handle, 0), (self.handle, at), len)
    }

    /// Reads bytes, through a buffer that the host sees where it does not see this one.
    pub(crate) fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        assert!(at + bytes.len() as u64 <= self.size);
        if !self.mapped.is_null() {
            // SAFETY: within the mapping; nobody writes meanwhile, since the device is waited for.
            let from = unsafe { std::slice::from_raw_parts(self.mapped.add(at as usize), bytes.len()) };
            bytes.copy_from_slice(from);
            return Ok(());
        }
        let seen = self.gpu.buffer("staging", bytes.len() as u64, Use::FromDevice)?;
        copy(&self.gpu, (self.handle, at), (seen.handle, 0), bytes.len() as u64)?;
        seen.read(0, bytes)
    }
}

fn copy(gpu: &Gpu, from: (vk::Buffer, u64), to: (vk::Buffer, u64), len: u64) -> Result<(), DeviceError> {
    if len == 0 {
        return Ok(());
    }
    let mut commands = crate::device::Commands::new(gpu)?;
    commands.begin()?;
    commands.copy(from, to, len);
    commands.end()?;
    commands.run()
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let device = &self.gpu.inner.device;
        // SAFETY: nothing that runs uses it, since work is waited for; freeing unmaps.
        unsafe {
            device.destroy_buffer(self.handle, None);
            device.free_memory(self.memory, None);
        }
    }
}
