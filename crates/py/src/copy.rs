//! Encode rows in the binary format of PostgreSQL's COPY.

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
const PIECE: usize = 1 << 20;

/// A buffer for a piece of a COPY stream.
pub struct CopyRows {
    out: Vec<u8>,
}

impl CopyRows {
    /// Create a piece that continues a stream.
    pub fn without_header() -> Self {
        Self {
            out: Vec::with_capacity(PIECE + (PIECE >> 3)),
        }
    }

    /// Create the first piece of a stream: signature, no flags, no header extension.
    pub fn start() -> Self {
        let Self { mut out } = Self::without_header();
        out.extend_from_slice(SIGNATURE);
        out.extend_from_slice(&[0; 8]);
        Self { out }
    }

    pub fn is_full(&self) -> bool {
        self.out.len() >= PIECE
    }

    pub fn bytes(&self) -> &[u8] {
        &self.out
    }

    pub fn clear(&mut self) {
        self.out.clear();
    }

    /// Start a row with this number of fields.
    pub fn row(&mut self, fields: i16) {
        self.out.extend_from_slice(&fields.to_be_bytes());
    }

    pub fn bigint(&mut self, value: Option<i64>) {
        self.bytes_of(
            value
                .map(i64::to_be_bytes)
                .as_ref()
                .map(<[u8; 8]>::as_slice),
        );
    }

    pub fn boolean(&mut self, value: bool) {
        self.bytes_of(Some(&[u8::from(value)]));
    }

    /// Append text, bytes or null.
    pub fn bytes_of(&mut self, value: Option<&[u8]>) {
        let Some(value) = value else {
            self.out.extend_from_slice(&(-1_i32).to_be_bytes());
            return;
        };
        // PostgreSQL rejects fields of 1 GB, so the length always fits.
        self.out
            .extend_from_slice(&(value.len() as i32).to_be_bytes());
        self.out.extend_from_slice(value);
    }

    /// End the stream.
    pub fn end(&mut self) {
        self.row(-1);
    }
}
