//! Rows in the binary format of PostgreSQL's COPY.

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
const PIECE: usize = 1 << 20;

/// A growing piece of a COPY stream.
pub struct CopyRows {
    out: Vec<u8>,
}

impl CopyRows {
    /// A piece in the middle of a stream.
    pub fn go_on() -> Self {
        Self {
            out: Vec::with_capacity(PIECE + (PIECE >> 3)),
        }
    }

    /// Begin a stream: signature, no flags, no header extension.
    pub fn start() -> Self {
        let Self { mut out } = Self::go_on();
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

    /// Announce a row of so many fields.
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

    /// A text, a byte string, or null.
    pub fn bytes_of(&mut self, value: Option<&[u8]>) {
        let Some(value) = value else {
            self.out.extend_from_slice(&(-1_i32).to_be_bytes());
            return;
        };
        // PostgreSQL refuses a field of a gigabyte, so the length always fits.
        self.out
            .extend_from_slice(&(value.len() as i32).to_be_bytes());
        self.out.extend_from_slice(value);
    }

    /// End the stream.
    pub fn end(&mut self) {
        self.row(-1);
    }
}
