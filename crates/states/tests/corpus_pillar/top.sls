base:
  '*':
    - common
  'G@no:such':
    - never
