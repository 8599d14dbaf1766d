one: test.nop
---
two: test.nop
