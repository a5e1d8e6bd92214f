// The texts of the page that stand out too little from what is behind them, with their contrast (WCAG 2.2, 1.4.3).
() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const channels = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = pen.getImageData(0, 0, 1, 1).data;
    return { of: [red, green, blue], alpha: alpha / 255 };
  };
  const laid = (upper, lower) => upper.of.map((value, i) => value * upper.alpha + lower[i] * (1 - upper.alpha));
  const behind = (element) => {
    const own = channels(getComputedStyle(element).backgroundColor);
    if (own.alpha === 1 || !element.parentElement) return own.of;
    return laid(own, behind(element.parentElement));
  };
  const luminance = (colour) => {
    const [red, green, blue] = colour
      .map((value) => value / 255)
      .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const faint = {};
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode.textContent.trim();
    const element = texts.currentNode.parentElement;
    if (!text || element.closest(".sr, noscript, :disabled")) continue;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const style = getComputedStyle(element);
    const ground = behind(element);
    const ink = laid(channels(element instanceof SVGElement ? style.fill : style.color), ground);
    const [light, dark] = [luminance(ink), luminance(ground)].sort((a, b) => b - a);
    const contrast = (light + 0.05) / (dark + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (contrast < (large ? 3 : 4.5)) faint[text.slice(0, 40)] = contrast.toFixed(2);
  }
  return faint;
}
